"""Hyperparameters of the analytic family: GeMCL, PN and ALPaCA."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sbmcl.config.base import MethodConfig, image_shape
from sbmcl.data.episodes import EpisodeSource

if TYPE_CHECKING:
    from torch import nn

    from sbmcl.methods.base import Method


def class_encoder(source: EpisodeSource, width: int, depth: int) -> "tuple[nn.Module, int]":
    """The network in front of a belief about classes, and how many numbers it makes of a picture or a vector."""
    from torch import nn

    from sbmcl.nets.conv import ConvEncoder
    from sbmcl.nets.mlp import MLP

    if source.kind != "classes" or len(source.x_shape) != 1:
        return ConvEncoder(*image_shape(source), width), width
    inputs = source.x_shape[0]
    return (MLP(inputs, width, depth=depth), width) if depth else (nn.Identity(), inputs)


@dataclass(frozen=True)
class GeMCL(MethodConfig):
    """Per-class Normal-Gamma beliefs on the outputs of a convolutional encoder."""

    width: int = 512
    """Dimensions of the encoder's output."""
    depth: int = 2
    """Linear layers of the encoder of vectors; 0 takes them as they are. Pictures have a convolutional encoder."""
    shape: float = 100.0
    """Initial a0 of the prior over precisions."""
    rate: float = 1000.0
    """Initial b0 of the prior over precisions."""
    count: float = 0.0
    """Initial k0: how many examples the prior on a class mean is worth; 0 is the published flat prior."""
    tempered: bool = False
    """Learn a temperature of the log-scores."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.conjugate import GeMCL as Build

        encoder, width = class_encoder(source, self.width, self.depth)
        return Build(encoder, width, shape=self.shape, rate=self.rate, count=self.count, tempered=self.tempered)


@dataclass(frozen=True)
class PN(MethodConfig):
    """Prototypical networks: isotropic Gaussian beliefs on the outputs of a convolutional encoder."""

    width: int = 512
    """Dimensions of the encoder's output."""
    depth: int = 2
    """Linear layers of the encoder of vectors; 0 takes them as they are. Pictures have a convolutional encoder."""
    variance: float = 0.5
    """Initial variance of a class around its prototype."""
    precision: float = 0.0
    """Initial precision of the prior on prototypes; 0 is the published flat prior."""
    tempered: bool = False
    """Learn a temperature of the log-scores."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.conjugate import PN as Build

        encoder, width = class_encoder(source, self.width, self.depth)
        return Build(encoder, width, variance=self.variance, precision=self.precision, tempered=self.tempered)


@dataclass(frozen=True)
class ALPaCA(MethodConfig):
    """Bayesian linear regression on the outputs of an MLP."""

    width: int = 512
    """Dimensions of the features, so the belief is width x width."""
    hidden: int = 512
    """Units of the encoder's hidden layers."""
    depth: int = 2
    """Linear layers of the encoder; 2 is the published one, 0 takes vectors as they are."""
    loss: Literal["mse", "nll"] = "mse"
    """Squared error of the predictive mean (as published) or the exact predictive log-likelihood."""
    noise: float = 0.1
    """Initial standard deviation of the observations."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from torch import nn

        from sbmcl.methods.conjugate import ALPaCA as Build
        from sbmcl.nets.mlp import MLP

        if len(source.x_shape) != 1 or len(source.y_shape) != 1:
            raise ValueError(f"ALPaCA maps vectors to vectors, but here x is {source.x_shape} and y {source.y_shape}")
        inputs, out = source.x_shape[0], source.y_shape[0]
        if self.depth == 0:
            return Build(nn.Identity(), inputs, out, loss=self.loss, noise=self.noise)
        encoder = MLP(inputs, self.width, hidden=self.hidden, depth=self.depth, final="relu")
        return Build(encoder, self.width, out, loss=self.loss, noise=self.noise)
