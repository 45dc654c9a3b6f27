"""How a gallery is drawn: strips of small pictures with names beside them, and panels of curves.

It knows tensors and matplotlib, no method and no data set. All lengths are px, and a px is written as two dots. No text is
under 12 px, and nothing is told by colour alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from textwrap import fill
from typing import Any

import matplotlib as mpl
import torch
import torch.nn.functional as F
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

INK, FAINT, MARK, PAPER = "#15191d", "#565f67", "#b33a00", "#eef0f2"
LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 12,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "ytick.color": INK,
}
WIDTH = 900  # of every picture: titles fit, and so do ten small pictures in a row
MARGIN, TITLE, HEAD, NOTE = 12, 30, 20, 18
NAME = 124  # of the column of names
SIDE, GAP, FRAME = 64, 8, 3  # of a small picture, between two, and around one that is marked
DOTS = 2


@dataclass(frozen=True)
class Strip:
    """Small pictures in a row. Those that are marked get a frame; a note stands under each."""

    name: str
    pictures: Float[Tensor, "n c h w"]  # in [-1, 1]; a single channel is grey
    detail: str = ""
    notes: tuple[str, ...] = ()
    marked: tuple[bool, ...] = ()

    @property
    def height(self) -> int:
        return SIDE + GAP + (NOTE if self.notes else 0)


def sheet(title: str, strips: list[Strip], groups: tuple[str, ...] = ()) -> Figure:
    """Strips of up to ten under one another; `groups` stand above as many columns each."""
    columns = max(len(strip.pictures) for strip in strips)
    each = columns // len(groups) if groups else columns
    lefts = [MARGIN + NAME + column * (SIDE + GAP) + column // each * GAP for column in range(columns)]
    top = MARGIN + TITLE + (HEAD if groups else 0)
    tops = list(accumulate((strip.height for strip in strips), initial=top))
    page = torch.empty(3, DOTS * (tops[-1] + MARGIN - GAP), DOTS * WIDTH)
    page[:] = _rgb(PAPER)
    for strip, y in zip(strips, tops, strict=False):
        for number, (picture, x) in enumerate(zip(_coloured(strip.pictures), lefts, strict=False)):
            if strip.marked and strip.marked[number]:
                _inside(page, x - FRAME, y - FRAME, SIDE + 2 * FRAME)[:] = _rgb(MARK)
            _inside(page, x, y, SIDE)[:] = picture
    with mpl.rc_context(LOOK):
        canvas, axes = _canvas(page)
        axes.text(MARGIN, MARGIN, title, fontsize=14, va="top")
        for number, group in enumerate(groups):
            first, last = lefts[number * each], lefts[(number + 1) * each - 1] + SIDE
            axes.text((first + last) / 2, top - GAP, group, ha="center", va="baseline")
        for strip, y in zip(strips, tops, strict=False):
            _write_beside(axes, strip.name, strip.detail, y)
            for number, (note, x) in enumerate(zip(strip.notes, lefts, strict=False)):
                told = MARK if strip.marked and strip.marked[number] else INK
                axes.text(x + SIDE / 2, y + SIDE + NOTE - 3, note, ha="center", va="baseline", color=told)
    return canvas


def _write_beside(axes: Any, name: str, detail: str, y: int) -> None:
    name = fill(name, 17)
    axes.text(MARGIN, y + 2, name, va="top", fontsize=13, linespacing=1.1)
    under = y + 2 + 17 * (name.count("\n") + 1)
    axes.text(MARGIN, under, fill(detail, 18), va="top", color=FAINT, linespacing=1.1)


def _canvas(page: Float[Tensor, "3 h w"]) -> tuple[Figure, Any]:
    """A figure whose only axes are the page, in px from its upper left corner."""
    height, width = (length / DOTS for length in page.shape[1:])
    canvas = Figure(figsize=(width / 72, height / 72), dpi=72)  # a point is a px
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.imshow(page.permute(1, 2, 0).numpy(), extent=(0, width, height, 0), interpolation="none", aspect="auto")
    return canvas, axes


def _coloured(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 3 side side"]:
    light = (pictures.float().clamp(-1, 1) + 1) / 2
    large = F.interpolate(light, size=(DOTS * SIDE, DOTS * SIDE), mode="nearest-exact")
    return large.expand(-1, 3, -1, -1)


def _inside(page: Float[Tensor, "3 h w"], x: int, y: int, side: int) -> Float[Tensor, "3 s s"]:
    return page[:, DOTS * y : DOTS * (y + side), DOTS * x : DOTS * (x + side)]


def _rgb(colour: str) -> Float[Tensor, "3 1 1"]:
    return torch.tensor([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]).view(3, 1, 1)


@dataclass(frozen=True)
class Panel:
    """Curves over the places of a vector: what is true and, where somebody answered, the answer with its 95 % band."""

    truth: Float[Tensor, "m k"]
    answer: Float[Tensor, "k"] | None = None
    deviation: Float[Tensor, "k"] | None = None
    given: Float[Tensor, "k"] | None = None


@dataclass(frozen=True)
class Row:
    name: str
    panels: list[Panel]
    detail: str = ""
    colour: str = INK


def panels(title: str, rows: list[Row], groups: tuple[str, ...]) -> Figure:
    """Rows of panels, all to one scale; `groups` stand above the columns."""
    wide, high = 142, 104
    top, width = MARGIN + TITLE + HEAD, WIDTH
    height = top + len(rows) * (high + GAP) + 2 * MARGIN + HEAD
    limits = _limits(panel for row in rows for panel in row.panels)
    found: dict[str, Any] = {}
    with mpl.rc_context(LOOK):
        canvas = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor="white")
        over = canvas.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        over.set_axis_off()
        over.text(MARGIN, MARGIN, title, fontsize=14, va="top")
        for i, row in enumerate(rows):
            y = top + i * (high + GAP)
            _write_beside(over, row.name, row.detail, y)
            for j, panel in enumerate(row.panels):
                x = MARGIN + NAME + j * (wide + GAP)
                axes = canvas.add_axes((x / width, 1 - (y + high) / height, wide / width, high / height), ylim=limits)
                axes.set_xticks([])
                axes.tick_params(labelleft=j == 0, length=0 if j else 3)
                found |= _draw(axes, panel, row.colour)
        for j, group in enumerate(groups):
            over.text(MARGIN + NAME + j * (wide + GAP) + wide / 2, top - GAP, group, ha="center")
        place = ((MARGIN + NAME) / width, MARGIN / height)
        canvas.legend(
            found.values(),
            found.keys(),
            loc="lower left",
            ncols=4,
            frameon=False,
            bbox_to_anchor=place,
            borderaxespad=0,
        )
    return canvas


def _draw(axes: Any, panel: Panel, colour: str) -> dict[str, Any]:
    """What is drawn, by what the legend calls it."""
    place, found = range(panel.truth.shape[1]), {}
    if panel.given is not None:
        (found["given (x)"],) = axes.plot(place, panel.given, color=FAINT, linewidth=1, linestyle=":")
    if panel.answer is None:
        for values in panel.truth:
            (found["learned (y)"],) = axes.plot(place, values, color=INK, linewidth=0.8)
        return found
    (found["answer"],) = axes.plot(place, panel.answer, color=colour, linewidth=3, alpha=0.7)
    if panel.deviation is not None:
        low, high = (panel.answer + side * 1.96 * panel.deviation for side in (-1, 1))
        found["95 % of what it expects"] = axes.fill_between(place, low, high, color=colour, alpha=0.25, linewidth=0)
    for values in panel.truth:
        (found["asked for (y)"],) = axes.plot(place, values, color=INK, linewidth=1.2, linestyle="--")
    return found


def _limits(drawn: Iterable[Panel]) -> tuple[float, float]:
    """Of what is true and what was given; an answer may leave the panel, but not make all others flat."""
    values = torch.cat([part.flatten() for p in drawn for part in (p.truth, p.given) if part is not None])
    low, high = values.min().item(), values.max().item()
    room = 0.15 * (high - low) or 1.0
    return low - room, high + room
