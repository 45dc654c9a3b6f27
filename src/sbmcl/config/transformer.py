"""Hyperparameters of the transformers, softmax and linear."""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from sbmcl.config.base import MethodConfig
from sbmcl.config.sgd import head
from sbmcl.data.episodes import EpisodeSource

if TYPE_CHECKING:
    from torch import nn

    from sbmcl.methods.base import Method


@dataclass(frozen=True)
class Transformer(MethodConfig):
    """A stream as a sequence of tokens x, y, x, y, ...; published widths, for any kind of target."""

    attention: Literal["softmax", "linear"] = "softmax"
    """Softmax attention remembers all tokens, linear attention two sums of fixed size."""
    width: int = 512
    """Of a token."""
    layers: int = 4
    heads: int = 8
    head_width: int = 64
    """Of queries, keys and values in each head; 512 is the published one of linear attention."""
    hidden: int = 1024
    """Units of the feed-forward layers."""
    dropout: float = 0.1
    """After attention and feed-forward layers, in meta-training."""
    norm: bool = False
    """Layer norm in front of attention and feed-forward layers; none is the published form."""
    vocabulary: int = 500
    """Codes that labels are written in: the most classes a stream can have."""
    guided: int = 10_000
    """First meta-training steps whose loss also tells queries to look at their own task; 0 never does."""

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "head_width", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"method.{name} counts from 1, but got {getattr(self, name)}")
        if self.width % 2:
            raise ValueError(f"method.width must be even, for pairs of sine and cosine, but got {self.width}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"method.dropout is a share, 0 <= share < 1, but got {self.dropout}")

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from torch import nn

        from sbmcl.methods.transformer import Transformer as Build
        from sbmcl.nets.transformer import Trunk

        trunk = Trunk(
            self.width,
            layers=self.layers,
            heads=self.heads,
            head_width=self.head_width,
            hidden=self.hidden,
            kind=self.attention,
            dropout=self.dropout,
            norm=self.norm,
        )
        x_encoder, out = self._encoder(source.x_shape), prod(source.y_shape)
        match source.kind:
            case "classes":
                y_encoder, output = nn.Embedding(self.vocabulary, self.width), nn.Linear(self.width, self.vocabulary)
            case "image":
                y_encoder = self._encoder(source.y_shape, bare=True)
                output = nn.Sequential(nn.Linear(self.width, out), nn.Tanh(), nn.Unflatten(-1, source.y_shape))
            case "vector" | "angle":
                y_encoder, output = self._encoder(source.y_shape), nn.Linear(self.width, out)
            case kind:
                raise ValueError(f"a transformer is asked for classes, vectors, angles or images, but here for: {kind}")
        vocabulary = self.vocabulary if source.kind == "classes" else None
        return Build(trunk, x_encoder, y_encoder, output, head(source), vocabulary=vocabulary, guided=self.guided)

    def _encoder(self, shape: tuple[int, ...], *, bare: bool = False) -> "nn.Module":
        """From an x or a y to a token; `bare` ends in the maps of the last convolution where their size fits."""
        from sbmcl.nets.conv import ConvEncoder
        from sbmcl.nets.mlp import MLP

        if len(shape) == 3:
            channels, height, width = shape
            return ConvEncoder(channels, height, width, self.width, bare=bare)
        if len(shape) == 1:
            return MLP(shape[0], self.width, hidden=self.width, depth=3, final="relu", bias=False)
        raise ValueError(f"a transformer reads vectors and pictures, but here it is given one of shape {shape}")
