"""What all per-class beliefs share: a class axis that grows when a new label arrives.

A per-class belief has fields of shape `b c d` (or `b c 1`): `c` classes, independent given the shared prior. A class not
seen yet simply is the prior, so growing is padding with it and nothing has to be declared. A prior worth no observation
at all (`count` 0) is flat: it has no density, and neither has a class that nothing but it is known of.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.beliefs.base import Belief


class ClassBelief(Belief):
    """Labels are 0..c-1 in any order, with any number of examples a class."""

    count: Tensor  # how many observations the knowledge of a class's mean is worth
    shift: Tensor

    @property
    def classes(self) -> int:
        return self.shift.shape[1]

    def grow(self, classes: int, prior: Self) -> Self:
        """Room for at least so many classes; `prior` has one class, and each new class starts as it."""
        missing = classes - self.classes
        if missing <= 0:
            return self

        def padded(mine: Tensor, fresh: Tensor) -> Tensor:
            return torch.cat([mine, fresh.expand(mine.shape[0], missing, mine.shape[2])], dim=1)

        fresh = prior.naturals
        return replace(self, **{n: padded(mine, fresh[n]) for n, mine in self.naturals.items()})  # pyright: ignore

    def merge(self, other: Self, *, prior: Self) -> Self:
        """As for every belief; the two may have met different classes, and the prior of one class is enough."""
        classes = max(self.classes, other.classes)
        mine, theirs, start = (belief.grow(classes, prior) for belief in (self, other, prior))
        return mine.observe(theirs).retract(start)

    def predictive(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        """log p(x | class c, everything seen), the class's parameters integrated out."""
        raise NotImplementedError

    def plug_in(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n c"]:
        """log p(x | class c) with the class's parameters at the mode of the belief."""
        raise NotImplementedError

    def novelty(self, x: Float[Tensor, "b n d"], prior: Self) -> Float[Tensor, "b n"]:
        """log p(x | a new class) - log sum_c p(x | c); under a flat prior the first term is a constant and is left out."""
        fresh = prior.predictive(x).squeeze(-1)
        return fresh.nan_to_num(neginf=0.0) - self.predictive(x).logsumexp(-1)

    @property
    def count_or_one(self) -> Tensor:
        """A count to divide by; where it is 0 the quotient is never used, but has to have a gradient."""
        return self.count.masked_fill(self.count <= 0, 1.0)

    def unless_flat(self, log_density: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        return log_density.masked_fill((self.count <= 0).squeeze(-1).unsqueeze(1), -math.inf)

    def _with(self, other: Self, operation: Callable[[Tensor, Tensor], Tensor]) -> Self:
        if other.classes != self.classes:
            raise ValueError(
                f"beliefs about {self.classes} classes and {other.classes} do not add; grow both to the same number first"
            )
        return super()._with(other, operation)


def class_sums(x: Float[Tensor, "b n d"], label: Int[Tensor, "b n"], classes: int) -> Float[Tensor, "b c d"]:
    """Sum the rows of each class; a scatter, so the cost does not grow with the number of classes."""
    b, _, d = x.shape
    return x.new_zeros(b, classes, d).scatter_add(1, label.unsqueeze(-1).expand_as(x), x)


def class_counts(x: Float[Tensor, "b n d"], label: Int[Tensor, "b n"], classes: int) -> Float[Tensor, "b c 1"]:
    return class_sums(torch.ones_like(x[..., :1]), label, classes)
