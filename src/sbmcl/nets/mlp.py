"""Multi-layer perceptrons with batch-norm. They know vectors, not episodes."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn


class MLP(nn.Sequential):
    """`depth` linear layers, batch-norm and ReLU between them; `final="relu"` adds both after the last one too.

    Depth 2 with 512 hidden units is the published one. No bias where a batch-norm follows a hidden layer, and with
    `bias=False` none in the last layer either.
    """

    def __init__(
        self,
        inputs: int,
        out: int,
        *,
        hidden: int = 512,
        depth: int = 2,
        final: Literal["none", "relu"] = "none",
        bias: bool = True,
    ):
        super().__init__()
        for layer in range(depth - 1):
            self.append(nn.Linear(inputs if layer == 0 else hidden, hidden, bias=False))
            self.append(nn.BatchNorm1d(hidden))
            self.append(nn.ReLU())
        self.append(nn.Linear(hidden if depth > 1 else inputs, out, bias=bias))
        if final == "relu":
            self.append(nn.BatchNorm1d(out))
            self.append(nn.ReLU())

    def forward(self, input: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        return super().forward(input)
