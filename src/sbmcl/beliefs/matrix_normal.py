"""Bayesian linear regression with a matrix-normal belief about the weights: the belief of ALPaCA.

It may know tensors only. There are two routes to the same predictive: the belief (d x d, whatever the length of the stream)
and, for a short stream, `predict_from` (n x n, no belief formed).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sbmcl.beliefs.base import Belief, standard_normal
from sbmcl.state import shared, state


@state
class LinearPredictive:
    """y ~ N( mean, spread * noise ), with noise = R R^T the covariance of the observations.

    `spread` = 1 + f^T L^-1 f, so spread - 1 is the part of the variance that more data would remove.
    """

    mean: Float[Tensor, "b n k"]
    spread: Float[Tensor, "b n"]
    noise_tril: Float[Tensor, "k k"] = shared()

    @property
    def aleatoric(self) -> Float[Tensor, "b n k"]:
        return self.noise_tril.square().sum(-1).expand_as(self.mean)

    @property
    def epistemic(self) -> Float[Tensor, "b n k"]:
        return self.aleatoric * (self.spread - 1).unsqueeze(-1)

    def log_prob(self, y: Float[Tensor, "b n k"]) -> Float[Tensor, "b n"]:
        """-1/2 [ k log(2 pi) + k log g + logdet Sig + e^T Sig^-1 e / g ],  g the spread, e = y - mean."""
        whitened = torch.linalg.solve_triangular(self.noise_tril, (y - self.mean).mT, upper=False)
        k, log_det = y.shape[-1], 2 * self.noise_tril.diagonal().log().sum()
        distance = whitened.square().sum(-2) / self.spread
        return -0.5 * (k * (2 * math.pi * self.spread).log() + log_det + distance)


@state
class MatrixNormal(Belief):
    """y = W^T f + e, e ~ N(0, Sig), W ~ MN(M, L^-1, Sig)   (Harrison et al. 2018).

    Natural parameters: L and Q = L M. An example adds (f f^T, f y^T).
    """

    precision: Float[Tensor, "b d d"]  # L
    shift: Float[Tensor, "b d k"]  # Q = L M
    noise_tril: Float[Tensor, "k k"] = shared()  # R, with Sig = R R^T

    @classmethod
    def of(cls, mean: Tensor, precision: Tensor, noise_tril: Tensor) -> "MatrixNormal":
        return cls(precision, precision @ mean, noise_tril)

    @property
    def mean(self) -> Float[Tensor, "b d k"]:
        return torch.cholesky_solve(self.shift, self._cholesky())

    def evidence(self, f: Float[Tensor, "b n d"], y: Float[Tensor, "b n k"]) -> "MatrixNormal":
        return MatrixNormal(f.mT @ f, f.mT @ y, self.noise_tril)

    def mode(self) -> Float[Tensor, "b d k"]:
        return self.mean

    def sample(self, *shape: int, rng: torch.Generator | None = None) -> Float[Tensor, "*s b d k"]:
        """W = M + C^-T G R^T, with L = C C^T and G standard normal."""
        noise = standard_normal((*shape, *self.shift.shape), self.shift, rng)
        scaled = torch.linalg.solve_triangular(self._cholesky().mT, noise, upper=True)
        return self.mean + scaled @ self.noise_tril.mT

    def kl(self, other: "MatrixNormal") -> Float[Tensor, "b"]:
        """1/2 { k [ tr(L2 L1^-1) - d + logdet L1 - logdet L2 ] + tr( Sig^-1 (M1-M2)^T L2 (M1-M2) ) }."""
        d, k = self.shift.shape[-2:]
        mine, theirs = self._cholesky(), other._cholesky()
        trace = torch.linalg.solve_triangular(mine, theirs, upper=False).square().sum((-2, -1))
        log_det = 2 * (mine.diagonal(dim1=-2, dim2=-1).log() - theirs.diagonal(dim1=-2, dim2=-1).log()).sum(-1)
        difference = theirs.mT @ (self.mean - other.mean)
        whitened = torch.linalg.solve_triangular(self.noise_tril, difference.mT, upper=False)
        return 0.5 * (k * (trace - d + log_det) + whitened.square().sum((-2, -1)))

    def predictive(self, f: Float[Tensor, "b n d"]) -> LinearPredictive:
        """y | f ~ N( M^T f, (1 + f^T L^-1 f) Sig )."""
        cholesky = self._cholesky()
        whitened = torch.linalg.solve_triangular(cholesky, f.mT, upper=False)
        mean = whitened.mT @ torch.linalg.solve_triangular(cholesky, self.shift, upper=False)
        return LinearPredictive(mean, 1 + whitened.square().sum(-2), self.noise_tril)

    def _cholesky(self) -> Float[Tensor, "b d d"]:
        return torch.linalg.cholesky(self.precision)


def predict_from(
    f: Float[Tensor, "b n d"],
    y: Float[Tensor, "b n k"],
    query: Float[Tensor, "b m d"],
    *,
    prior_mean: Float[Tensor, "d k"],
    prior_factor: Float[Tensor, "d d"],
    noise_tril: Float[Tensor, "k k"],
) -> LinearPredictive:
    """The predictive after a stream of n examples through an n x n system: the cheaper route while n < d.

    With K K^T = L0^-1 (K = `prior_factor`) and A = K^T F^T the posterior precision is K^-T (I + A A^T) K^-1. Writing it
    with the Gram matrix B = I + A^T A instead, and a = K^T f for a query:

        mean = M0^T f + (Y - F M0)^T B^-1 A^T a,        spread = 1 + a^T a - a^T A B^-1 A^T a
    """
    known, asked = f @ prior_factor, query @ prior_factor
    gram = known @ known.mT + torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
    cholesky = torch.linalg.cholesky(gram)
    cross = torch.linalg.solve_triangular(cholesky, known @ asked.mT, upper=False)
    residual = torch.linalg.solve_triangular(cholesky, y - f @ prior_mean, upper=False)
    spread = 1 + asked.square().sum(-1) - cross.square().sum(-2)
    return LinearPredictive(query @ prior_mean + cross.mT @ residual, spread, noise_tril)
