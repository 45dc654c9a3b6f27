"""The Normal-Gamma belief of GeMCL: every class and dimension has its own unknown mean and precision.

It may know tensors only. A flat prior on the mean (`count` 0, as published) and an informative one are the same code.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.beliefs.base import standard_normal
from sbmcl.beliefs.classes import ClassBelief, class_counts, class_sums
from sbmcl.state import state

AT_ONCE = 1 << 20
"""Terms of a predictive worked out together: what fits into a processor's cache, so that memory does not grow with them."""


@state
class NormalGamma(ClassBelief):
    """x ~ N(mu, 1/lam), (mu, lam) ~ N(mu | m, 1/(k lam)) Gamma(lam | a, rate b)   (Banayeeanzade et al. 2021).

    Natural parameters: k, k m, a and the energy e = b + k m^2 / 2. An example adds (1, x, 1/2, x^2/2). With k = 0 the mean
    is unknown and the formulas below are the limit k -> 0; the predictive of a class never seen is then improper (density 0).
    """

    count: Float[Tensor, "b c 1"]  # k
    shift: Float[Tensor, "b c d"]  # k m
    shape: Float[Tensor, "b c 1"]  # a
    energy: Float[Tensor, "b c d"]  # e

    @classmethod
    def of(cls, mean: Tensor, count: Tensor, shape: Tensor, rate: Tensor) -> "NormalGamma":
        return cls(count, count * mean, shape, rate + 0.5 * count * mean.square())

    @property
    def mean(self) -> Float[Tensor, "b c d"]:
        return self.shift / self.count_or_one

    @property
    def rate(self) -> Float[Tensor, "b c d"]:
        return self.energy - 0.5 * self.shift * self.mean

    def evidence(self, x: Float[Tensor, "b n d"], label: Int[Tensor, "b n"]) -> "NormalGamma":
        count = class_counts(x, label, self.classes)
        square = class_sums(x.square(), label, self.classes)
        return NormalGamma(count, class_sums(x, label, self.classes), 0.5 * count, 0.5 * square)

    def mode(self) -> tuple[Float[Tensor, "b c d"], Float[Tensor, "b c d"]]:
        """The joint mode in (mu, lam): mu = m, lam = (a - 1/2) / b; it needs a > 1/2."""
        return self.mean, (self.shape - 0.5) / self.rate

    def sample(self, *shape: int, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draws of (mu, lam); the Gamma draw is differentiable through torch's implicit reparameterisation."""
        a = self.shape.expand_as(self.rate).expand(*shape, *self.rate.shape)
        gamma = torch._standard_gamma(a, generator=rng)  # pyright: ignore  # torch.distributions takes no generator
        precision = gamma / self.rate
        noise = standard_normal(precision.shape, precision, rng)
        return self.mean + (self.count * precision).rsqrt() * noise, precision

    def kl(self, other: "NormalGamma") -> Float[Tensor, "b c"]:
        """Infinite for a flat `other`, since no density is left to compare with."""
        a1, a2, b1, b2 = self.shape, other.shape, self.rate, other.rate
        ratio = other.count / self.count
        of_mean = 0.5 * (other.count * (a1 / b1) * (self.mean - other.mean).square() + ratio - ratio.log() - 1)
        of_precision = a2 * (b1 / b2).log() - a1.lgamma() + a2.lgamma() + (a1 - a2) * a1.digamma() - (b1 - b2) * a1 / b1
        return (of_mean + of_precision).sum(-1)

    def predictive(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        """Student-t with 2a degrees of freedom, location m and squared scale b(k+1)/(ak), in every dimension:

        log p(x) = lgamma(a+1/2) - lgamma(a) - 1/2 log(2 pi w) - (a+1/2) log(1 + (x-m)^2 / (2w)),   w = b (1 + 1/k)
        """
        a, width = self.shape, self.rate * (1 + 1 / self.count_or_one)
        constant = (a + 0.5).lgamma() - a.lgamma() - 0.5 * (2 * math.pi * width).log()
        location, half = self.mean.unsqueeze(1), (0.5 / width).unsqueeze(1)
        at_once = max(1, AT_ONCE // width.numel())
        logs = [((part.unsqueeze(2) - location).square() * half).log1p().sum(-1) for part in x.split(at_once, dim=1)]
        tails = (a + 0.5).squeeze(-1).unsqueeze(1) * torch.cat(logs, dim=1)
        return self.unless_flat(constant.sum(-1).unsqueeze(1) - tails)

    def plug_in(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        """Gaussian with mean m and precision (a - 1/2)/b; the squares are expanded into matrix products."""
        mean, precision = self.mode()
        quadratic = x.square() @ precision.mT - 2 * x @ (precision * mean).mT
        constant = (precision * mean.square() - precision.log() + math.log(2 * math.pi)).sum(-1)
        return self.unless_flat(-0.5 * (quadratic + constant.unsqueeze(1)))
