"""Variational auto-encoders: bits a pixel of binary pictures."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sbmcl.beliefs.base import standard_normal
from sbmcl.heads.base import Head
from sbmcl.nets.vae import Reconstruction


@dataclass(frozen=True)
class VAEHead(Head):
    """A prediction is a `Reconstruction`; y is the picture itself, of pixels -1 and 1.

        bpd = [ -log p(y | u) + KL(q(u | y) || N(0, I)) ] / (pixels ln 2),     u ~ q(u | y)

    bounds from above, in expectation over u, the bits that a pixel of y costs the model. Training raises the weight of the
    KL from zero over the first `warmup` steps, or the code may die before the decoder has learned to read it.
    """

    latent: int  # dimensions of u
    warmup: int = 0
    questions: int = 10  # draws of u for every query
    kl_weight: float = 1.0

    metric = "bpd"

    def ask(
        self, x: Float[Tensor, "b n *x"], y: Float[Tensor, "b n c h w"], rng: torch.Generator | None
    ) -> tuple[tuple[Tensor, ...], Float[Tensor, "b n c h w"]]:
        return (x, standard_normal((*y.shape[:2], self.latent), y, rng)), y

    def at(self, step: int | None) -> Self:
        return self if step is None or step >= self.warmup else replace(self, kl_weight=step / self.warmup)

    def nats(self, y: Float[Tensor, "b n c h w"]) -> float:
        return super().nats(y) * math.log(2)

    def loss(self, prediction: Reconstruction, y: Float[Tensor, "b n c h w"]) -> Float[Tensor, ""]:
        bits = self.scores(prediction, y)
        return (bits["reconstruction"] + self.kl_weight * bits["code"]).mean()

    def scores(self, prediction: Reconstruction, y: Float[Tensor, "b n c h w"]) -> dict[str, Tensor]:
        """`bpd` whole, and its two parts: bits for the `reconstruction` and for the `code` u."""
        mean, log_variance = prediction.mean, prediction.log_variance
        picture = F.softplus(-y * prediction.logits).flatten(2).sum(-1) / self.nats(y)
        code = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(-1) / self.nats(y)
        return {"bpd": picture + code, "reconstruction": picture, "code": code}

    def pictures(self, logits: Float[Tensor, "*b c h w"]) -> Float[Tensor, "*b c h w"]:
        """The expected picture, in [-1, 1]."""
        return (logits / 2).tanh()
