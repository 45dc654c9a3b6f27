"""Hyperparameters of the generic latent method and its models: completion, rotation, VAE and DDPM."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sbmcl.config.base import MethodConfig
from sbmcl.data.episodes import EpisodeSource, Kind

if TYPE_CHECKING:
    from sbmcl.methods.base import Method
    from sbmcl.nets.unet import UNet


@dataclass(frozen=True)
class Latent(MethodConfig):
    """What all of them share."""

    kl_weight: float = 1.0
    """Weight of the KL between the belief and N(0, I), beside a loss counted in nats."""
    published_kl: bool = False
    """The reference's penalty in place of the KL, for comparison only."""
    samples: int = 5
    """Draws of z that answers are averaged over."""

    def __post_init__(self) -> None:
        if self.kl_weight < 0:
            raise ValueError(f"method.kl_weight cannot be negative, but got {self.kl_weight}")
        if self.samples < 1:
            raise ValueError(f"method.samples counts from 1, but got {self.samples}")

    def options(self) -> dict[str, Any]:
        return {"kl_weight": self.kl_weight, "published_kl": self.published_kl, "samples": self.samples}


@dataclass(frozen=True)
class LatentCompletion(Latent):
    """z beside the code of a picture's upper half, in front of a decoder of the lower; the learner reads whole pictures."""

    kl_weight: float = 1e-3
    width: int = 512
    """Dimensions of z and of the codes."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from torch import nn

        from sbmcl.heads import VectorHead
        from sbmcl.methods.latent import Latent
        from sbmcl.nets.conv import ConvDecoder, ConvEncoder
        from sbmcl.nets.joined import Joined
        from sbmcl.nets.mlp import MLP

        check_task(source, "image")
        (channels, height, width), z = source.x_shape, self.width
        if source.x_shape != source.y_shape:
            raise ValueError(f"halves of one picture are alike, but here x is {source.x_shape} and y {source.y_shape}")
        decoder = ConvDecoder(z, channels, height, width, "tanh")
        return Latent(
            learner=Joined(ConvEncoder(channels, 2 * height, width, 2 * z), dim=-2),
            encoder=ConvEncoder(channels, height, width, z, "relu"),
            model=Joined(nn.Sequential(MLP(2 * z, z, final="relu"), decoder)),
            head=VectorHead(),
            dim=z,
            **self.options(),
        )


@dataclass(frozen=True)
class LatentRotation(Latent):
    """z beside the code of a turned picture, in front of an MLP; the learner reads the same code beside that of the angle."""

    kl_weight: float = 1e-3
    width: int = 512
    """Dimensions of z and of the codes."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from torch import nn

        from sbmcl.heads import AngleHead
        from sbmcl.methods.latent import Latent
        from sbmcl.nets.conv import ConvEncoder
        from sbmcl.nets.joined import Joined, PairReader
        from sbmcl.nets.mlp import MLP

        check_task(source, "angle")
        (channels, height, width), z = source.x_shape, self.width
        return Latent(
            learner=PairReader(MLP(2, z, final="relu"), MLP(2 * z, 2 * z)),
            encoder=ConvEncoder(channels, height, width, z, "relu"),
            shared=True,
            model=Joined(nn.Sequential(MLP(2 * z, z, final="relu"), MLP(z, 2))),
            head=AngleHead(),
            dim=z,
            **self.options(),
        )


@dataclass(frozen=True)
class LatentVAE(Latent):
    """A variational auto-encoder of binary pictures: z beside the code that it infers from and the u that it decodes."""

    width: int = 512
    """Dimensions of z, of u and of the codes."""
    warmup: int = 1_000
    """Steps over which the weight of the KL of u rises to one."""
    draws: int = 10
    """Draws of u that a score is averaged over, for each z."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup < 0 or self.draws < 1:
            raise ValueError(f"method.warmup is at least 0 and method.draws 1, but got {self.warmup} and {self.draws}")

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.heads import VAEHead
        from sbmcl.methods.latent import LatentVAE
        from sbmcl.nets.conv import ConvDecoder, ConvEncoder
        from sbmcl.nets.mlp import MLP
        from sbmcl.nets.vae import VAE

        check_task(source, "binary")
        (channels, height, width), z = source.x_shape, self.width
        return LatentVAE(
            learner=MLP(z, 2 * z),
            encoder=ConvEncoder(channels, height, width, z, "relu"),
            shared=True,
            model=VAE(infer=MLP(2 * z, 2 * z), decoder=ConvDecoder(2 * z, channels, height, width)),
            head=VAEHead(z, self.warmup, self.draws),
            dim=z,
            **self.options(),
        )


@dataclass(frozen=True)
class Diffusion:
    """A diffusion model without any z."""

    steps: int = 1_000
    """Steps of the diffusion."""
    base: int = 64
    """Channels of the U-Net at full resolution; at all lower ones it has twice as many."""
    levels: int = 4
    """Resolutions of the U-Net, each half the one before."""
    groups: int = 32
    """Of the group-norms."""

    def __post_init__(self) -> None:
        if self.levels < 1:
            raise ValueError(f"method.levels counts from 1, but got {self.levels}")
        if self.base < 1 or self.base % 2 or self.base % self.groups:
            raise ValueError(
                f"method.base is an even multiple of method.groups, but got {self.base} channels in {self.groups} groups"
            )

    def unet(self, channels: int, dropout: float) -> "UNet":
        from sbmcl.nets.unet import UNet

        multipliers = (1, *[2] * (self.levels - 1))
        return UNet(channels, base=self.base, multipliers=multipliers, groups=self.groups, dropout=dropout)


@dataclass(frozen=True)
class LatentDDPM(Diffusion, Latent):
    """A diffusion model: z is added to the bottleneck of its U-Net; the learner reads clean pictures."""

    kl_weight: float = 1e-5
    dropout: float = 0.1

    def __post_init__(self) -> None:
        Latent.__post_init__(self)
        Diffusion.__post_init__(self)

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from torch import Size, nn

        from sbmcl.heads import DiffusionHead
        from sbmcl.methods.latent import LatentDDPM
        from sbmcl.nets.conv import ConvEncoder
        from sbmcl.nets.mlp import MLP

        check_task(source, "generation")
        channels, height, width = source.x_shape
        unet = self.unet(channels, self.dropout)
        dim = Size(unet.bottleneck(height, width)).numel()
        return LatentDDPM(
            learner=nn.Sequential(ConvEncoder(channels, height, width, 512, "relu"), MLP(512, 2 * dim)),
            model=unet,
            head=DiffusionHead(self.steps),
            dim=dim,
            shape=source.x_shape,
            **self.options(),
        )


def check_task(source: EpisodeSource, kind: Kind) -> None:
    if source.kind != kind:
        tasks = {"image": "completion", "angle": "rotation", "binary": "binarised", "generation": "generation"}
        raise ValueError(
            f"this method is for --data.task {tasks[kind]}, but what is asked here is of kind {source.kind!r}"
        )
    if len(source.x_shape) != 3:
        raise ValueError(f"this method is for pictures, but here x is {source.x_shape}")
