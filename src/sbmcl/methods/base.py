"""The protocol of every learner: a state goes in, a state comes out, and the networks never change while it learns.

To add a method, subclass `Method` in a file of its own and put it into `tests/test_every_method.py`; training, evaluation
and the command line need no change. Every method obeys one law: `learn(learn(s, a), b) == learn(s, a + b)`.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmcl.episode import Episode, Examples
from sbmcl.heads.base import Head
from sbmcl.state import state

S = TypeVar("S")


@state
class Losses:
    """What the outer loop minimises, and the named parts worth watching."""

    total: Float[Tensor, ""]
    parts: dict[str, Tensor]


class Method(nn.Module, ABC, Generic[S]):
    head: Head
    bf16 = False  # whether networks (never beliefs) run in bfloat16; training and evaluation set it

    @abstractmethod
    def init(self, batch: int, *, rng: torch.Generator | None = None) -> S:
        """What is known before the first example, for `batch` streams side by side.

        `rng` is for methods whose start is random, such as the label codes of a transformer; None is a fixed start.
        """

    @abstractmethod
    def learn(self, state: S, examples: Examples) -> S:
        """What is known after some more examples. Pure; any chunking of a stream gives the same state."""

    @abstractmethod
    def predict(
        self, state: S, x: Float[Tensor, "b n *x"], *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Any:
        """Answer queries; never changes the state. `at_mode` puts the mode of the belief in place of the belief (MAP)."""

    @abstractmethod
    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        """The loss of learning `episode.stream` and being asked `episode.query`, differentiable in the parameters."""

    def score(
        self, state: S, queries: Examples, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> dict[str, Float[Tensor, "b n"]]:
        """Predict and judge: one number a query and score, the head's `metric` among them."""
        return self.head.scores(self.predict(state, queries.x, rng=rng, at_mode=at_mode), queries.targets)

    def novelty(self, state: S, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n"] | None:
        """How unlike everything learned a query is (higher is more novel), where the method can tell."""
        return None

    def run(self, network: nn.Module, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n *y"]:
        """A network over the examples of all episodes at once, in bf16 and channels-last where that was asked for."""
        flat = x.flatten(0, 1)
        if flat.dim() == 4:
            flat = flat.contiguous(memory_format=torch.channels_last)
        with self._autocast(x.device.type):
            out = network(flat)
        return out.to(x.dtype).unflatten(0, x.shape[:2])

    def _autocast(self, device: str) -> AbstractContextManager[Any]:
        return torch.autocast(device, torch.bfloat16, enabled=self.bf16)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype
