"""Hyperparameters of OML and OML-Reptile."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sbmcl.config.base import MethodConfig
from sbmcl.config.sgd import head
from sbmcl.data.episodes import EpisodeSource

if TYPE_CHECKING:
    from torch import nn

    from sbmcl.heads import Head
    from sbmcl.methods.base import Method
    from sbmcl.nets.fast import FastMLP


@dataclass(frozen=True)
class OML(MethodConfig):
    """Gradient descent on two layers behind an encoder, their initial weights meta-learned through all of its steps."""

    width: int = 512
    """Dimensions of the encoder's output, and of what a decoder of images reads."""
    hidden: int = 512
    """Units between the two fast layers."""
    rate: float = 0.03
    """Initial learning rate of the inner steps."""
    classes: int = 1_000
    """Outputs of a classifier: the most classes a stream can have."""
    redraw: bool = False
    """Draw a classifier's last layer anew for every stream, as published, in place of codes and a meta-learned one."""

    def __post_init__(self) -> None:
        for name in ("width", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"method.{name} counts from 1, but got {getattr(self, name)}")
        if self.rate <= 0:
            raise ValueError(f"method.rate must be positive, but got {self.rate}")
        if self.classes < 2:
            raise ValueError(f"method.classes is at least 2, but got {self.classes}")

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.oml import OML as Build

        return Build(*self._parts(source), **self._options(source))

    def _parts(self, source: EpisodeSource) -> "tuple[nn.Module, FastMLP, Head]":
        """The encoder, the fast layers behind it and the head (SPEC 3.2)."""
        from sbmcl.nets.fast import FastMLP

        match source.kind:
            case "classes":
                out = self.classes
            case "vector" | "angle":
                out = source.y_shape[0]
            case "image":
                out = self.width
            case kind:
                raise ValueError(f"OML is asked for classes, vectors, angles or images, but here for: {kind}")
        return self._encoder(source.x_shape), FastMLP(self.width, out, hidden=self.hidden), head(source)

    def _options(self, source: EpisodeSource) -> dict[str, Any]:
        if source.kind == "classes":
            return {"rate": self.rate, "classes": self.classes, "redraw": self.redraw}
        if self.redraw:
            raise ValueError(f"method.redraw is for classifiers, but what is asked here is of kind {source.kind!r}")
        if source.kind == "image":
            return {"rate": self.rate, "decoder": self._decoder(source.y_shape)}
        return {"rate": self.rate}

    def _decoder(self, shape: tuple[int, ...]) -> "nn.Module":
        from torch import nn

        from sbmcl.nets.conv import ConvDecoder

        channels, height, width = shape
        return nn.Sequential(nn.ReLU(), ConvDecoder(self.width, channels, height, width, "tanh"))

    def _encoder(self, shape: tuple[int, ...]) -> "nn.Module":
        from sbmcl.nets.conv import ConvEncoder
        from sbmcl.nets.mlp import MLP

        if len(shape) == 3:
            channels, height, width = shape
            return ConvEncoder(channels, height, width, self.width, "relu")
        if len(shape) == 1:
            return MLP(shape[0], self.width, final="relu")
        raise ValueError(f"OML reads vectors and pictures, but here x is {shape}")


@dataclass(frozen=True)
class OMLReptile(OML):
    """The same, its initial weights following those that streams end with; no gradient passes through an inner step."""

    pull: float = 0.1
    """Share of the way to the mean of the final weights that the initial ones go in a step of the outer loop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.pull <= 1:
            raise ValueError(f"method.pull is a share, 0 < share <= 1, but got {self.pull}")

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.oml import OMLReptile as Build

        return Build(*self._parts(source), pull=self.pull, **self._options(source))
