"""Regression of vectors and pictures: the squared error of the mean and, where there is a distribution, its likelihood."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from sbmcl.heads.base import Head


@runtime_checkable
class Distribution(Protocol):
    """A predictive distribution; its mean is the answer."""

    @property
    def mean(self) -> Tensor: ...

    def log_prob(self, y: Tensor, /) -> Tensor: ...


class VectorHead(Head):
    """A prediction is the values themselves, or a distribution over them."""

    metric = "mse"

    def loss(self, prediction: Tensor | Distribution, y: Float[Tensor, "b n *y"]) -> Float[Tensor, ""]:
        return (_point(prediction) - y).square().mean()

    def scores(self, prediction: Tensor | Distribution, y: Float[Tensor, "b n *y"]) -> dict[str, Tensor]:
        scores = {"mse": (_point(prediction) - y).square().flatten(2).mean(-1)}
        if not isinstance(prediction, Tensor):  # nats per value, so that vectors of any length compare
            scores["nll"] = -prediction.log_prob(y) / y[0, 0].numel()
        return scores


def _point(prediction: Tensor | Distribution) -> Tensor:
    return prediction if isinstance(prediction, Tensor) else prediction.mean
