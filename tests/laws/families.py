"""Every family of beliefs as the laws see it. A new family joins all of them with one entry in `FAMILIES`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sbmcl.beliefs import DiagonalGaussian, IsotropicGaussian, MatrixNormal, NormalGamma
from sbmcl.beliefs.classes import ClassBelief
from sbmcl.state import map_tensors

Rng = torch.Generator
BATCH, CLASSES, DIM = 2, 3, 4
SHARED = ("variance", "noise_tril")  # of the model, not of the belief


@dataclass(frozen=True)
class Family:
    prior: Callable[[Rng], Any]
    """A prior for `BATCH` streams, in float64."""
    observations: Callable[[Rng, int], tuple[Tensor, ...]]
    """What `evidence` is made of: so many observations, along axis 1."""
    answers: Callable[[Any, Rng], Any]
    """All that is computed from a belief: its mode and, in closed form, its predictive."""
    flat: bool = False
    """The prior has no density, so no KL and no samples before every class has been seen."""

    def posterior(self, rng: Rng, count: int) -> Any:
        prior = self.prior(rng)
        return prior.observe(prior.evidence(*self.observations(rng, count)))


def normal(rng: Rng, *size: int) -> Tensor:
    return torch.randn(size, generator=rng, dtype=torch.float64)


def positive(rng: Rng, *size: int) -> Tensor:
    return 0.2 + 2 * torch.rand(size, generator=rng, dtype=torch.float64)


def labels(rng: Rng, count: int) -> Tensor:
    """Unequal shots in random order; every class is met as soon as there are observations enough."""

    def stream() -> Tensor:
        more = torch.randint(CLASSES, (count,), generator=rng)
        met = torch.cat([torch.arange(CLASSES), more])[:count]
        return met[torch.randperm(count, generator=rng)]

    return torch.stack([stream() for _ in range(BATCH)])


def vectors_with_labels(rng: Rng, count: int) -> tuple[Tensor, Tensor]:
    return 2 * normal(rng, BATCH, count, DIM) + 1, labels(rng, count)


def normal_gamma(rng: Rng, *, flat: bool) -> NormalGamma:
    count = torch.zeros(BATCH, 1, 1, dtype=torch.float64) if flat else positive(rng, BATCH, 1, 1)
    mean, shape, rate = normal(rng, BATCH, 1, DIM), 1 + positive(rng, BATCH, 1, 1), positive(rng, BATCH, 1, DIM)
    one = NormalGamma.of(mean, count, shape, rate)
    return one.grow(CLASSES, one)


def isotropic(rng: Rng, *, flat: bool) -> IsotropicGaussian:
    count = torch.zeros(BATCH, 1, 1, dtype=torch.float64) if flat else positive(rng, BATCH, 1, 1)
    one = IsotropicGaussian.of(normal(rng, BATCH, 1, DIM), count, positive(rng))
    return one.grow(CLASSES, one)


def matrix_normal(rng: Rng) -> MatrixNormal:
    factor = normal(rng, BATCH, DIM, DIM)
    noise = normal(rng, 2, 2).tril(-1) + torch.diag(positive(rng, 2))
    return MatrixNormal.of(normal(rng, BATCH, DIM, 2), factor @ factor.mT + torch.eye(DIM), noise)


def regression(rng: Rng, count: int) -> tuple[Tensor, Tensor]:
    return normal(rng, BATCH, count, DIM), normal(rng, BATCH, count, 2)


def gaussian(rng: Rng) -> DiagonalGaussian:
    return DiagonalGaussian.of(normal(rng, BATCH, DIM), normal(rng, BATCH, DIM))


def factors(rng: Rng, count: int) -> tuple[Tensor, Tensor]:
    return normal(rng, BATCH, count, DIM), normal(rng, BATCH, count, DIM)


def answers_of_classes(belief: ClassBelief, rng: Rng) -> Any:
    x = normal(rng, BATCH, 5, DIM).to(belief.shift.dtype)
    return belief.mode(), belief.predictive(x), belief.plug_in(x)


def answers_of_regression(belief: MatrixNormal, rng: Rng) -> Any:
    f, y = (t.to(belief.shift.dtype) for t in regression(rng, 5))
    predictive = belief.predictive(f)
    return belief.mode(), predictive.mean, predictive.epistemic, predictive.log_prob(y)


def answers_of_gaussian(belief: DiagonalGaussian, rng: Rng) -> Any:
    return belief.mode(), belief.precision


FAMILIES: dict[str, Family] = {
    "diagonal Gaussian": Family(gaussian, factors, answers_of_gaussian),
    "Normal-Gamma": Family(partial(normal_gamma, flat=False), vectors_with_labels, answers_of_classes),
    "Normal-Gamma, flat": Family(partial(normal_gamma, flat=True), vectors_with_labels, answers_of_classes, flat=True),
    "isotropic Gaussian": Family(partial(isotropic, flat=False), vectors_with_labels, answers_of_classes),
    "isotropic Gaussian, flat": Family(partial(isotropic, flat=True), vectors_with_labels, answers_of_classes, True),
    "matrix-normal": Family(matrix_normal, regression, answers_of_regression),
}

CLASS_FAMILIES = [name for name, family in FAMILIES.items() if family.observations is vectors_with_labels]


def one_class(belief: Any) -> Any:
    """The prior of a single class, out of a prior of several."""
    return replace(belief, **{n: t[:, :1] for n, t in vars(belief).items() if t.dim() == 3})


def single(tree: Any) -> Any:
    return map_tensors(lambda t: t.float() if t.is_floating_point() else t, tree)
