"""Hyperparameters of OML and OML-Reptile."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sbmcl.config.base import MethodConfig
from sbmcl.config.latent import Diffusion, check_task
from sbmcl.config.sgd import head
from sbmcl.data.episodes import EpisodeSource

if TYPE_CHECKING:
    from torch import nn

    from sbmcl.methods import oml
    from sbmcl.methods.base import Method


@dataclass(frozen=True)
class FastWeights(MethodConfig):
    """What all of them share."""

    rate: float = 0.03
    """Initial learning rate of the inner steps."""

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ValueError(f"method.rate must be positive, but got {self.rate}")

    def build(self, source: EpisodeSource) -> "Method[Any]":
        return self._method()(**self._parts(source))

    def _method(self) -> "type[oml.OML]":
        raise NotImplementedError

    def _parts(self, source: EpisodeSource) -> dict[str, Any]:
        """All that it is built of."""
        raise NotImplementedError


@dataclass(frozen=True)
class FastLayers(FastWeights):
    """Linear layers behind an encoder."""

    width: int = 512
    """Dimensions of the encoder's output, and of what a decoder of pictures reads."""
    hidden: int = 512
    """Units between two fast layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"method.{name} counts from 1, but got {getattr(self, name)}")

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
class Pulled(FastWeights):
    """OML-Reptile: the initial weights follow those that streams end with; no gradient passes through an inner step."""

    pull: float = 0.1
    """Share of the way to the mean of the final weights that the initial ones go in a step of the outer loop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.pull <= 1:
            raise ValueError(f"method.pull is a share, 0 < share <= 1, but got {self.pull}")

    def _parts(self, source: EpisodeSource) -> dict[str, Any]:
        return {**super()._parts(source), "pull": self.pull}


@dataclass(frozen=True)
class OML(FastLayers):
    """Gradient descent on two layers behind an encoder, their initial weights meta-learned through all of its steps."""

    classes: int = 1_000
    """Outputs of a classifier: the most classes a stream can have."""
    redraw: bool = False
    """Draw a classifier's last layer anew for every stream, as published, in place of codes and a meta-learned one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes < 2:
            raise ValueError(f"method.classes is at least 2, but got {self.classes}")

    def _method(self) -> "type[oml.OML]":
        from sbmcl.methods.oml import OML

        return OML

    def _parts(self, source: EpisodeSource) -> dict[str, Any]:
        from sbmcl.nets.fast import FastMLP

        if self.redraw and source.kind != "classes":
            raise ValueError(f"method.redraw is for classifiers, but what is asked here is of kind {source.kind!r}")
        match source.kind:
            case "classes":
                out, options = self.classes, {"classes": self.classes, "redraw": self.redraw}
            case "vector" | "angle":
                out, options = source.y_shape[0], {}
            case "image":
                out, options = self.width, {"decoder": _decoder(self.width, source.y_shape, "tanh")}
            case kind:
                raise ValueError(f"OML is asked for classes, vectors, angles or images, but here for: {kind}")
        return {
            "encoder": self._encoder(source.x_shape),
            "fast": FastMLP(self.width, out, hidden=self.hidden),
            "head": head(source),
            "rate": self.rate,
            **options,
        }


@dataclass(frozen=True)
class OMLReptile(Pulled, OML):
    """The same, its initial weights following those that streams end with; no gradient passes through an inner step."""

    def _method(self) -> "type[oml.OML]":
        from sbmcl.methods.oml import OMLReptile

        return OMLReptile


@dataclass(frozen=True)
class OMLVAE(FastLayers):
    """A variational auto-encoder of binary pictures: two fast layers before its u, and two after it."""

    rate: float = 0.003
    warmup: int = 1_000
    """Steps over which the weight of the KL of u rises to one."""
    draws: int = 10
    """Draws of u that a score is averaged over."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup < 0 or self.draws < 1:
            raise ValueError(f"method.warmup is at least 0 and method.draws 1, but got {self.warmup} and {self.draws}")

    def _method(self) -> "type[oml.OML]":
        from sbmcl.methods.oml import OMLVAE

        return OMLVAE

    def _parts(self, source: EpisodeSource) -> dict[str, Any]:
        from sbmcl.heads import VAEHead
        from sbmcl.nets.fast import FastVAE

        check_task(source, "binary")
        return {
            "encoder": self._encoder(source.x_shape),
            "fast": FastVAE(self.width, self.width, self.width, hidden=self.hidden),
            "head": VAEHead(self.width, self.warmup, self.draws),
            "rate": self.rate,
            "decoder": _decoder(self.width, source.x_shape, "none"),
        }


@dataclass(frozen=True)
class OMLReptileVAE(Pulled, OMLVAE):
    """The same, its initial weights following those that streams end with; no gradient passes through an inner step."""

    rate: float = 0.03

    def _method(self) -> "type[oml.OML]":
        from sbmcl.methods.oml import OMLReptileVAE

        return OMLReptileVAE


@dataclass(frozen=True)
class OMLDDPM(Diffusion, FastWeights):
    """A diffusion model whose U-Net adapts at its bottleneck."""

    rate: float = 0.001
    dropout: float = 0.1
    """Of the queries in meta-training; nothing is dropped while a stream is learned."""

    def __post_init__(self) -> None:
        FastWeights.__post_init__(self)
        Diffusion.__post_init__(self)

    def _method(self) -> "type[oml.OML]":
        from sbmcl.methods.oml import OMLDDPM

        return OMLDDPM

    def _parts(self, source: EpisodeSource) -> dict[str, Any]:
        from sbmcl.heads import DiffusionHead
        from sbmcl.nets.fast_unet import FastUNet

        check_task(source, "generation")
        channels, height, width = source.x_shape
        unet = self.unet(channels, self.dropout)
        unet.bottleneck(height, width)  # refuses pictures that cannot be halved so often
        return {
            "fast": FastUNet(unet),
            "head": DiffusionHead(self.steps),
            "shape": source.x_shape,
            "rate": self.rate,
        }


@dataclass(frozen=True)
class OMLReptileDDPM(Pulled, OMLDDPM):
    """The same, its initial weights following those that streams end with; no gradient passes through an inner step."""

    rate: float = 0.001

    def _method(self) -> "type[oml.OML]":
        from sbmcl.methods.oml import OMLReptileDDPM

        return OMLReptileDDPM


def _decoder(inputs: int, shape: tuple[int, ...], final: Literal["none", "tanh"]) -> "nn.Module":
    """From the last fast layer to a picture."""
    from torch import nn

    from sbmcl.nets.conv import ConvDecoder

    channels, height, width = shape
    return nn.Sequential(nn.ReLU(), ConvDecoder(inputs, channels, height, width, final))
