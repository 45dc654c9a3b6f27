"""The one idea of the library: a belief is a sum of natural parameters, and Bayes' rule is `+`.

For a likelihood in an exponential family with a conjugate prior, log p(D, z) is linear in the natural parameters, so each
example adds its own term and nothing else happens. Evidence is therefore written as an object of the same class: the
natural parameters that its likelihood contributes. Order, chunks, shards and forgetting follow from the sum being a sum.

A new family subclasses `Belief`, names its natural parameters as fields, and passes `tests/laws`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor


class Belief(ABC):
    """A distribution over a latent z, held as natural parameters. Subclasses are decorated with `@state`."""

    @abstractmethod
    def evidence(self, *observations: Any) -> Self:
        """The natural parameters that a chunk of observations (`b n ...`) adds to this belief (`b ...`)."""

    def observe(self, evidence: Self) -> Self:
        """Bayes' rule."""
        return self._with(evidence, torch.add)

    def retract(self, evidence: Self) -> Self:
        """Bayes' rule taken back: the belief as if this evidence had never been seen."""
        return self._with(evidence, torch.sub)

    def merge(self, other: Self, *, prior: Self) -> Self:
        """What two learners know together that started from the same prior; the prior counts once."""
        return self.observe(other).retract(prior)

    @abstractmethod
    def mode(self) -> Any:
        """The most probable z."""

    @abstractmethod
    def sample(self, *shape: int, rng: torch.Generator | None = None) -> Any:
        """Independent draws of z, `shape` in front; differentiable in the parameters wherever that is possible."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """KL(self || other) in nats, summed over everything that belongs to one z."""

    @property
    def naturals(self) -> dict[str, Tensor]:
        """The parameters that add up, by name; what is left out is shared by everyone."""
        own = [f.name for f in fields(self) if not f.metadata.get("shared")]  # pyright: ignore[reportArgumentType]
        return {name: getattr(self, name) for name in own}

    def _with(self, other: Self, operation: Callable[[Tensor, Tensor], Tensor]) -> Self:
        theirs = other.naturals
        return replace(self, **{n: operation(t, theirs[n]) for n, t in self.naturals.items()})  # pyright: ignore


def standard_normal(shape: torch.Size | tuple[int, ...], like: Tensor, rng: torch.Generator | None) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=like.dtype, device=like.device)
