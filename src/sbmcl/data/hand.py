"""The hand that draws glyphs: how unlike two drawings of one character are. Imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hand:
    """How unlike two drawings of one glyph are: standard deviations, unless said otherwise."""

    corner: float = 7.0
    """Degrees, of every change of direction."""
    turn: float = 0.12
    """Of a piece's turning, as a share of it."""
    length: float = 0.12
    """Of the logarithm of a piece's length."""
    wobble: float = 5.0
    """Degrees, of a slow wave in the direction."""
    place: float = 0.05
    """Of where strokes touch, as a share of the glyph's size."""
    rotation: float = 4.0
    """Degrees, of the whole."""
    shear: float = 5.0
    """Degrees, of the whole."""
    scale: float = 0.08
    """Of the logarithm of the size, each axis by itself."""
    shift: float = 1.5
    """Pixels, of the whole."""
    width: float = 0.12
    """Of the logarithm of the pen's width."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise ValueError(f"the hand's {name} is a spread and cannot be negative, but got {value}")
