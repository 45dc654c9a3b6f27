"""Prototypes with uncertainty: every class has an unknown mean, all share one known isotropic variance.

It may know tensors only. With a flat prior (`count` 0) the mean is the running average of Prototypical Networks.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.beliefs.base import standard_normal
from sbmcl.beliefs.classes import ClassBelief, class_counts, class_sums
from sbmcl.state import shared, state


@state
class IsotropicGaussian(ClassBelief):
    """x | c ~ N(mu_c, s2 I) with s2 known, mu_c ~ N(m, t I)   (Snell et al. 2017 is the flat limit).

    Natural parameters, in units of 1/s2: k = s2/t, the number of observations that the knowledge is worth, and k m. An
    example adds (1, x). Counting in whole observations is exact, so a class retracted to nothing is exactly the flat prior.
    """

    count: Float[Tensor, "b c 1"]  # k
    shift: Float[Tensor, "b c d"]  # k m
    variance: Float[Tensor, ""] = shared()  # s2, of the observations

    @classmethod
    def of(cls, mean: Tensor, count: Tensor, variance: Tensor) -> "IsotropicGaussian":
        return cls(count, count * mean, variance)

    @property
    def mean(self) -> Float[Tensor, "b c d"]:
        return self.shift / self.count_or_one

    @property
    def precision(self) -> Float[Tensor, "b c 1"]:
        """1/t, of the mean."""
        return self.count / self.variance

    def evidence(self, x: Float[Tensor, "b n d"], label: Int[Tensor, "b n"]) -> "IsotropicGaussian":
        count, total = class_counts(x, label, self.classes), class_sums(x, label, self.classes)
        return IsotropicGaussian(count, total, self.variance)

    def mode(self) -> Float[Tensor, "b c d"]:
        return self.mean

    def sample(self, *shape: int, rng: torch.Generator | None = None) -> Float[Tensor, "*s b c d"]:
        noise = standard_normal((*shape, *self.shift.shape), self.shift, rng)
        return self.mean + self.precision.rsqrt() * noise

    def kl(self, other: "IsotropicGaussian") -> Float[Tensor, "b c"]:
        """d/2 ( t1/t2 - 1 - log(t1/t2) ) + |m1 - m2|^2 / (2 t2)."""
        ratio = (other.precision / self.precision).squeeze(-1)
        distance = (other.precision * (self.mean - other.mean).square()).sum(-1)
        return 0.5 * (self.shift.shape[-1] * (ratio - 1 - ratio.log()) + distance)

    def predictive(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        """log N(x | m, (s2 + t) I); density 0 for a class never seen under a flat prior."""
        return self._log_density(x, self.variance * (1 + 1 / self.count_or_one))

    def plug_in(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        return self._log_density(x, self.variance.expand_as(self.count))

    def _log_density(self, x: Float[Tensor, "b n d"], variance: Float[Tensor, "b c 1"]) -> Float[Tensor, "b n c"]:
        """x.m/v - |x|^2/(2v) - |m|^2/(2v) - d/2 log(2 pi v), in one matrix product: of (x, |x|^2, 1) with a row for each class."""
        mean, one = self.mean, torch.ones_like(x[..., :1])
        constant = mean.square().sum(-1, keepdim=True) / variance + x.shape[-1] * (2 * math.pi * variance).log()
        rows = torch.cat([mean / variance, -0.5 / variance, -0.5 * constant], dim=-1)
        return self.unless_flat(torch.cat([x, x.square().sum(-1, keepdim=True), one], dim=-1) @ rows.mT)
