"""Encoder + belief with a closed-form predictive: GeMCL and PN (classes), ALPaCA (vectors).

The encoder is all that the outer loop trains besides a few numbers of the prior; the state is the belief itself. These
methods maximise the exact posterior predictive of the queries: no sampling, no KL.
"""

from abc import abstractmethod
from typing import Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sbmcl.beliefs import IsotropicGaussian, LinearPredictive, MatrixNormal, NormalGamma, predict_from
from sbmcl.beliefs.classes import ClassBelief
from sbmcl.episode import Episode, Examples
from sbmcl.heads import ClassHead, VectorHead
from sbmcl.methods.base import Losses, Method

C = TypeVar("C", bound=ClassBelief)


class ClassConjugate(Method[C]):
    """p(c | x, stream) proportional to p(x's code | c, stream), c uniform over the classes met so far.

    `tempered` multiplies the log-scores by a learned positive number. A density of many dimensions is over-confident when
    the encoder's outputs are not really independent; the temperature corrects that and leaves the arg-max alone.
    """

    def __init__(self, encoder: nn.Module, dim: int, *, tempered: bool = False):
        super().__init__()
        self.head = ClassHead()
        self.encoder = encoder
        self.dim = dim
        self.log_scale = nn.Parameter(torch.zeros(())) if tempered else None

    @abstractmethod
    def prior(self, batch: int) -> C:
        """The belief about one class never seen."""

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> C:
        return self.prior(batch)

    def learn(self, state: C, examples: Examples) -> C:
        codes = self.run(self.encoder, examples.x)
        return self._observe(state, codes, _labels(examples))

    def predict(
        self, state: C, x: Float[Tensor, "b n *x"], *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n c"]:
        return self._scores(state, self.run(self.encoder, x), at_mode)

    def novelty(self, state: C, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n"]:
        codes = self.run(self.encoder, x)
        return state.novelty(codes, self.prior(codes.shape[0]))

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        seen, asked = episode.stream, episode.query
        codes = self.run(self.encoder, torch.cat([seen.x, asked.x], dim=1))
        known, query = codes.split([len(seen), len(asked)], dim=1)
        belief = self._observe(self.init(episode.size), known, _labels(seen))
        scores, answer = self._scores(belief, query, at_mode=False), _labels(asked)
        error = (scores.argmax(-1) != answer).to(codes.dtype).mean()
        return Losses(self.head.loss(scores, answer), {"error": error.detach()})

    def _observe(self, belief: C, codes: Float[Tensor, "b n d"], label: Int[Tensor, "b n"]) -> C:
        belief = belief.grow(int(label.max()) + 1, self.prior(1))
        return belief.observe(belief.evidence(codes, label))

    def _scores(self, belief: C, codes: Float[Tensor, "b n d"], at_mode: bool) -> Float[Tensor, "b n c"]:
        scores = belief.plug_in(codes) if at_mode else belief.predictive(codes)
        return scores if self.log_scale is None else scores * self.log_scale.exp()


class GeMCL(ClassConjugate[NormalGamma]):
    """Each class a Gaussian with unknown mean and variance in every dimension of the code.

    The prior is two numbers for all classes and dimensions, learned as logarithms; `count` > 0 makes the prior on the mean
    informative (and learned), 0 is the published flat one.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        *,
        shape: float = 100.0,
        rate: float = 1000.0,
        count: float = 0.0,
        tempered: bool = False,
    ):
        super().__init__(encoder, dim, tempered=tempered)
        self.log_shape = nn.Parameter(torch.tensor(shape).log())
        self.log_rate = nn.Parameter(torch.tensor(rate).log())
        self.log_count = nn.Parameter(torch.tensor(count).log()) if count > 0 else None

    def prior(self, batch: int) -> NormalGamma:
        one = torch.ones(batch, 1, 1, dtype=self.dtype, device=self.device)
        count = 0 * one if self.log_count is None else self.log_count.exp() * one
        wide = one.expand(batch, 1, self.dim)
        return NormalGamma.of(0 * wide, count, self.log_shape.exp() * one, self.log_rate.exp() * wide)


class PN(ClassConjugate[IsotropicGaussian]):
    """Prototypical networks as the isotropic special case; with a flat prior the prototype is the running mean.

    `variance` is that of a class around its prototype (learned, as a logarithm); `precision` that of the prior on
    prototypes, 0 for the published flat one.
    """

    def __init__(
        self, encoder: nn.Module, dim: int, *, variance: float = 0.5, precision: float = 0.0, tempered: bool = False
    ):
        super().__init__(encoder, dim, tempered=tempered)
        self.log_variance = nn.Parameter(torch.tensor(variance).log())
        self.log_precision = nn.Parameter(torch.tensor(precision).log()) if precision > 0 else None

    def prior(self, batch: int) -> IsotropicGaussian:
        one = torch.ones(batch, 1, 1, dtype=self.dtype, device=self.device)
        zeros = torch.zeros(batch, 1, self.dim, dtype=self.dtype, device=self.device)
        variance = self.log_variance.exp()
        count = 0 * one if self.log_precision is None else variance * self.log_precision.exp() * one
        return IsotropicGaussian.of(zeros, count, variance)


class ALPaCA(Method[MatrixNormal]):
    """Bayesian linear regression on meta-learned features.

    `loss="mse"` trains the features on the squared error of the predictive mean, as published; the noise covariance then
    learns alone, from the likelihood of the same (detached) predictions, so that the predictive is a distribution all the
    same. `loss="nll"` trains everything on the exact predictive log-likelihood.
    """

    def __init__(
        self, encoder: nn.Module, dim: int, out: int, *, loss: Literal["mse", "nll"] = "mse", noise: float = 0.1
    ):
        super().__init__()
        self.head = VectorHead()
        self.encoder = encoder
        self.loss = loss
        self.prior_mean = nn.Parameter(torch.zeros(dim, out))
        # The factor K of the prior covariance L0^-1 = K K^T: its strictly lower triangle, and the log of its diagonal
        self.prior_factor = nn.Parameter(torch.zeros(dim, dim))
        self.noise_factor = nn.Parameter(torch.tensor(noise).log() * torch.eye(out))

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> MatrixNormal:
        inverse = torch.linalg.solve_triangular(_triangular(self.prior_factor), self._identity(), upper=False)
        precision = (inverse.mT @ inverse).expand(batch, -1, -1)
        return MatrixNormal.of(self.prior_mean.expand(batch, -1, -1), precision, _triangular(self.noise_factor))

    def learn(self, state: MatrixNormal, examples: Examples) -> MatrixNormal:
        return state.observe(state.evidence(self.run(self.encoder, examples.x), _targets(examples)))

    def predict(
        self,
        state: MatrixNormal,
        x: Float[Tensor, "b n *x"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> LinearPredictive:
        predictive = state.predictive(self.run(self.encoder, x))
        if at_mode:  # the mode of W has the same mean; what it leaves out is the spread
            return LinearPredictive(predictive.mean, torch.ones_like(predictive.spread), predictive.noise_tril)
        return predictive

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        seen, asked = episode.stream, episode.query
        features = self.run(self.encoder, torch.cat([seen.x, asked.x], dim=1))
        known, query = features.split([len(seen), len(asked)], dim=1)
        predictive, answer = self._after(known, _targets(seen), query), _targets(asked)
        mse = self.head.loss(predictive, answer)
        if self.loss == "nll":
            nll = -predictive.log_prob(answer).mean() / answer.shape[-1]
            return Losses(nll, {"mse": mse.detach(), "nll": nll.detach()})
        noise_only = LinearPredictive(predictive.mean.detach(), predictive.spread.detach(), predictive.noise_tril)
        nll = -noise_only.log_prob(answer).mean() / answer.shape[-1]
        return Losses(mse + nll, {"mse": mse.detach(), "nll": nll.detach()})

    def _after(self, known: Tensor, y: Tensor, query: Tensor) -> LinearPredictive:
        """The predictive after a whole stream, by whichever of the two exact routes is cheaper."""
        if known.shape[1] >= known.shape[2]:
            belief = self.init(known.shape[0])
            return belief.observe(belief.evidence(known, y)).predictive(query)
        return predict_from(
            known,
            y,
            query,
            prior_mean=self.prior_mean,
            prior_factor=_triangular(self.prior_factor),
            noise_tril=_triangular(self.noise_factor),
        )

    def _identity(self) -> Tensor:
        return torch.eye(len(self.prior_factor), dtype=self.dtype, device=self.device)


def _triangular(factor: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """A lower-triangular matrix with a positive diagonal, from unconstrained numbers."""
    return factor.tril(-1) + torch.diag(factor.diagonal().exp())


def _labels(examples: Examples) -> Int[Tensor, "b n"]:
    y = examples.y
    if y is None or y.is_floating_point() or y.dim() != 2:
        found = "no labels" if y is None else f"{y.dtype} targets of shape {tuple(y.shape)}"
        raise ValueError(f"a classifier learns from integer labels of shape (batch, examples), but got {found}")
    if y.numel() and int(y.min()) < 0:
        raise ValueError(f"labels count from 0, but got {int(y.min())}; map your labels to 0..c-1 first")
    return y


def _targets(examples: Examples) -> Float[Tensor, "b n k"]:
    y = examples.y
    if y is None or not y.is_floating_point() or y.dim() != 3:
        found = "no targets" if y is None else f"{y.dtype} targets of shape {tuple(y.shape)}"
        raise ValueError(f"a regression learns from float vectors of shape (batch, examples, k), but got {found}")
    return y
