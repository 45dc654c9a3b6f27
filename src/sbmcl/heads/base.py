"""What is predicted and how it is scored. A head knows predictions and targets; it knows no method and no data set."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Float, Shaped
from torch import Tensor


class Head(ABC):
    metric: ClassVar[str]  # the score that tables are made of; lower is better
    pooled_only: ClassVar[frozenset[str]] = frozenset()  # scores that mean nothing by themselves, only to `pooled`

    @abstractmethod
    def loss(self, prediction: Any, y: Shaped[Tensor, "b n *y"]) -> Float[Tensor, ""]:
        """What the outer loop minimises, averaged over everything."""

    @abstractmethod
    def scores(self, prediction: Any, y: Shaped[Tensor, "b n *y"]) -> dict[str, Float[Tensor, "b n"]]:
        """One number a query, by name; `metric` is always among them."""

    def pooled(self, scores: dict[str, Float[Tensor, "b n"]]) -> dict[str, float]:
        """Figures that only exist for many queries together, such as a calibration error."""
        return {}
