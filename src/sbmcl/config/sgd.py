"""Hyperparameters of the learners that start every stream from scratch: Offline and Online."""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from sbmcl.config.base import MethodConfig
from sbmcl.config.latent import Diffusion
from sbmcl.data.episodes import EpisodeSource

if TYPE_CHECKING:
    from torch import nn

    from sbmcl.heads import Head
    from sbmcl.methods.base import Method


WARMUP = 100  # steps of Adam over which the weight of an auto-encoder's code rises to one, as published


@dataclass(frozen=True)
class FromScratch(MethodConfig):
    """What both have: the network of the benchmark without any z, and Adam."""

    meta_trained: ClassVar[bool] = False
    default_episodes: ClassVar[int] = 20

    width: int = 512
    """Units of every hidden layer."""
    classes: int = 500
    """Outputs of a classifier; those of classes not met yet are left out of its answers."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    halve_every: int = 2_000
    """Steps after which the learning rate is halved, again and again."""
    diffusion: Diffusion = field(default_factory=Diffusion)
    """Of a diffusion model."""

    def __post_init__(self) -> None:
        for name in ("width", "classes", "halve_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"method.{name} counts from 1, but got {getattr(self, name)}")
        if self.lr <= 0:
            raise ValueError(f"method.lr must be positive, but got {self.lr}")

    def options(self, source: EpisodeSource) -> dict[str, Any]:
        """What either method is built with."""
        return {
            "build": partial(network, source, self.width, self.classes, self.diffusion),
            "head": self._head(source),
            "x_shape": source.x_shape,
            "y_shape": source.y_shape,
            "lr": self.lr,
            "halve_every": self.halve_every,
            "classes": self.classes if source.kind == "classes" else 0,
        }

    def _head(self, source: EpisodeSource) -> "Head":
        from sbmcl.heads import DiffusionHead, VAEHead

        match source.kind:
            case "binary":
                return VAEHead(self.width, WARMUP)
            case "generation":
                return DiffusionHead(self.diffusion.steps)
            case _:
                return head(source)


@dataclass(frozen=True)
class Online(FromScratch):
    """One pass over the stream, a step of Adam for every few consecutive examples."""

    batch: int = 2
    """Examples of a step; batch-norm needs at least 2."""
    shuffled: bool = False
    """Keep the stream and make the one pass in random order when asked: as published, but no longer learning from a stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batch(self.batch)

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods import sgd

        online = _of_kind(source, sgd.Online, sgd.OnlineVAE, sgd.OnlineDDPM)
        offline = _of_kind(source, sgd.Offline, sgd.OfflineVAE, sgd.OfflineDDPM)
        return (offline if self.shuffled else online)(**self.options(source), batch=self.batch)


@dataclass(frozen=True)
class Offline(FromScratch):
    """Every example is kept, and a network trained on all of them when it is asked."""

    batch: int = 16
    """Examples of a step, drawn with replacement; batch-norm needs at least 2."""
    steps: int = 10_000
    """Steps of Adam, however long the stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batch(self.batch)
        if self.steps < 1:
            raise ValueError(f"method.steps counts from 1, but got {self.steps}")

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods import sgd

        build = _of_kind(source, sgd.Offline, sgd.OfflineVAE, sgd.OfflineDDPM)
        return build(**self.options(source), batch=self.batch, steps=self.steps)


def network(source: EpisodeSource, width: int, classes: int, diffusion: Diffusion) -> "nn.Module":
    """An encoder of x and two layers on top; for pictures a decoder after them.

    An auto-encoder reads pixels -1 and 1 here as everywhere (published, 0 and 1: deviation D21). A U-Net drops nothing (published,
    a tenth), since what is learned of a stream may depend on nothing but the stream.
    """
    from torch import nn

    from sbmcl.nets.conv import ConvDecoder
    from sbmcl.nets.mlp import MLP
    from sbmcl.nets.vae import VAE

    encoder = _encoder(source.x_shape, width)
    match source.kind:
        case "classes":
            return nn.Sequential(encoder, MLP(width, classes, hidden=width))
        case "vector" | "angle":
            return nn.Sequential(encoder, MLP(width, source.y_shape[0], hidden=width))
        case "image":
            channels, height, breadth = source.y_shape
            decoder = ConvDecoder(width, channels, height, breadth, "tanh")
            return nn.Sequential(encoder, MLP(width, width, hidden=width, final="relu"), decoder)
        case "generation":
            return diffusion.unet(source.x_shape[0], dropout=0.0)
        case "binary":
            channels, height, breadth = source.x_shape
            infer = nn.Sequential(encoder, MLP(width, 2 * width, hidden=width))
            return VAE(infer, ConvDecoder(width, channels, height, breadth))


def _encoder(shape: tuple[int, ...], width: int) -> "nn.Module":
    from sbmcl.nets.conv import ConvEncoder
    from sbmcl.nets.mlp import MLP

    if len(shape) == 1:
        return MLP(shape[0], width, hidden=width, final="relu")
    channels, height, breadth = shape
    return ConvEncoder(channels, height, breadth, width, "relu")


def head(source: EpisodeSource) -> "Head":
    from sbmcl.heads import AngleHead, ClassHead, VectorHead

    return {"classes": ClassHead, "angle": AngleHead}.get(source.kind, VectorHead)()


def _of_kind(source: EpisodeSource, ordinary: Any, vae: Any, ddpm: Any) -> Any:
    return {"binary": vae, "generation": ddpm}.get(source.kind, ordinary)


def _check_batch(batch: int) -> None:
    if batch < 2:
        raise ValueError(f"method.batch is at least 2, since batch-norm has to compare examples, but got {batch}")
