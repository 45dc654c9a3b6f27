"""Vector regression: the squared error of the predicted mean and, where there is a distribution, its likelihood."""

from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from sbmcl.heads.base import Head


class VectorPrediction(Protocol):
    """Any object with a mean; one that is a distribution has a `log_prob(y)` too."""

    @property
    def mean(self) -> Tensor: ...


class VectorHead(Head):
    metric = "mse"

    def loss(self, prediction: VectorPrediction, y: Float[Tensor, "b n k"]) -> Float[Tensor, ""]:
        return (prediction.mean - y).square().mean()

    def scores(self, prediction: VectorPrediction, y: Float[Tensor, "b n k"]) -> dict[str, Tensor]:
        scores = {"mse": (prediction.mean - y).square().mean(-1)}
        log_prob = getattr(prediction, "log_prob", None)
        if log_prob is not None:
            scores["nll"] = -log_prob(y) / y.shape[-1]  # nats per value, so that vectors of any length compare
        return scores
