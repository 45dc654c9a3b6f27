"""A factorised Gaussian over a latent vector: the belief of the generic SB-MCL.

It may know tensors only. The learner network that produces its evidence lives with the method.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from sbmcl.beliefs.base import Belief, standard_normal
from sbmcl.state import state


@state
class DiagonalGaussian(Belief):
    """z ~ N(mu, 1/Lambda) per coordinate, natural parameters Lambda and Lambda mu (Lee et al. 2024, sec. 3.4).

    An example contributes the Gaussian factor N(m_t | z, 1/P_t) with pseudo-observation m_t and precision P_t:

        Lambda <- Lambda + P_t,        Lambda mu <- Lambda mu + P_t m_t
    """

    precision: Float[Tensor, "*b d"]
    shift: Float[Tensor, "*b d"]  # Lambda mu

    @classmethod
    def of(cls, mean: Tensor, log_precision: Tensor) -> "DiagonalGaussian":
        precision = log_precision.exp()
        return cls(precision, precision * mean)

    @property
    def mean(self) -> Float[Tensor, "*b d"]:
        return self.shift / self.precision

    def evidence(self, mean: Float[Tensor, "*b n d"], log_precision: Float[Tensor, "*b n d"]) -> "DiagonalGaussian":
        precision = log_precision.exp()
        return DiagonalGaussian(precision.sum(-2), (precision * mean).sum(-2))

    def mode(self) -> Float[Tensor, "*b d"]:
        return self.mean

    def sample(self, *shape: int, rng: torch.Generator | None = None) -> Float[Tensor, "*s d"]:
        noise = standard_normal((*shape, *self.precision.shape), self.precision, rng)
        return self.mean + self.precision.rsqrt() * noise

    def kl(self, other: "DiagonalGaussian") -> Float[Tensor, "*b"]:
        """1/2 sum( L2 (mu1 - mu2)^2 + L2/L1 - log(L2/L1) - 1 )."""
        ratio = other.precision / self.precision
        squared = other.precision * (self.mean - other.mean).square()
        return 0.5 * (squared + ratio - ratio.log() - 1).sum(-1)
