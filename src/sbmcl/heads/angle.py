"""Regression of an angle, given as its cosine and sine: one minus the cosine of the error."""

from jaxtyping import Float
from torch import Tensor

from sbmcl.heads.base import Head


class AngleHead(Head):
    """A prediction is a vector v of any length in the plane; its direction is the answer.

        score = 1 - <v / max(|v|, 0.1), y>

    between 0 and 2, and 1 for no answer at all; the floor keeps the gradient of short vectors bounded.
    """

    metric = "angle"

    def nats(self, y: Float[Tensor, "b n 2"]) -> float:
        return 1.0

    def loss(self, prediction: Float[Tensor, "b n 2"], y: Float[Tensor, "b n 2"]) -> Float[Tensor, ""]:
        return self.scores(prediction, y)["angle"].mean()

    def scores(self, prediction: Float[Tensor, "b n 2"], y: Float[Tensor, "b n 2"]) -> dict[str, Tensor]:
        length = prediction.norm(dim=-1, keepdim=True).clamp_min(0.1)
        return {"angle": 1 - (prediction / length * y).sum(-1)}
