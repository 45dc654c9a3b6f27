"""What is predicted and how it is scored. A head knows predictions and targets; it knows no method and no data set."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


class Head(ABC):
    metric: ClassVar[str]  # the score that tables are made of; lower is better
    pooled_only: ClassVar[frozenset[str]] = frozenset()  # scores that mean nothing by themselves, only to `pooled`
    questions = 1  # how often each query is asked when scores are taken, where the question is random

    def ask(
        self, x: Shaped[Tensor, "b n *x"], y: Shaped[Tensor, "b n *y"], rng: torch.Generator | None
    ) -> tuple[tuple[Tensor, ...], Shaped[Tensor, "b n *t"]]:
        """What a network is given, and what its prediction is judged by.

        Where x is all that is given, that is (x,) and y. A generative model is asked for the picture it is shown (y is
        that picture) and is given noise too, so that it is a function like any other.
        """
        return (x,), y

    def at(self, step: int | None) -> Self:
        """The head as it is at this step of the outer loop, for a loss that is warmed up; None: when all of it counts."""
        return self

    def nats(self, y: Shaped[Tensor, "b n *y"]) -> float:
        """How many nats a unit of one example's loss is worth: one for each value, where the loss is a mean over values."""
        return float(y[0, 0].numel())

    @abstractmethod
    def loss(self, prediction: Any, y: Shaped[Tensor, "b n *y"]) -> Float[Tensor, ""]:
        """What the outer loop minimises, averaged over everything."""

    @abstractmethod
    def scores(self, prediction: Any, y: Shaped[Tensor, "b n *y"]) -> dict[str, Float[Tensor, "b n"]]:
        """One number a query, by name; `metric` is always among them."""

    def pooled(self, scores: dict[str, Float[Tensor, "b n"]]) -> dict[str, float]:
        """Figures that only exist for many queries together, such as a calibration error."""
        return {}
