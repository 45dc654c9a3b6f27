"""The protocol of every learner: a state goes in, a state comes out, and the networks never change while it learns.

To add a method, subclass `Method` in a file of its own and put it into `tests/test_every_method.py`; training, evaluation
and the command line need no change. Every method obeys one law: `learn(learn(s, a), b) == learn(s, a + b)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sbmcl.episode import Episode, Examples
from sbmcl.heads.base import Head
from sbmcl.state import map_tensors, state

S = TypeVar("S")

PIECE = 1_000  # examples that a frozen network sees at once


@state
class Losses:
    """What the outer loop minimises, and the named parts worth watching."""

    total: Float[Tensor, ""]
    parts: dict[str, Tensor]


class Method(nn.Module, ABC, Generic[S]):
    head: Head
    bf16 = False  # whether networks (never beliefs) run in bfloat16; training and evaluation set it
    meta_step: int | None = None  # of the outer loop, which sets it, for losses that are warmed up; None: none is

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

    def plain_descent(self) -> list[dict[str, Any]]:
        """Parameter groups, as `torch.optim.SGD` takes them, that the outer loop moves by plain gradient descent at a constant
        rate of their own; all other parameters are Adam's."""
        return []

    @property
    def gains_from_bf16(self) -> bool:
        """Whether bfloat16 pays, on hardware that multiplies it: for convolutions it does, for small linear layers not."""
        return any(isinstance(module, nn.Conv2d) for module in self.modules())

    def novelty(self, state: S, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n"] | None:
        """How unlike everything learned a query is (higher is more novel), where the method can tell."""
        return None

    def run(self, network: Callable[..., Any], *inputs: Shaped[Tensor, "b n ..."]) -> Any:
        """A network over the examples of all episodes at once, in bf16 and channels-last where that was asked for.

        Returns what the network does, tensors or trees of them, laid out by episode and in the precision of the first
        input. When frozen it takes the examples in pieces, so that memory does not grow with their number.
        """
        first = inputs[0]
        flat = [_channels_last(x.flatten(0, 1)) for x in inputs]
        size = max(1, len(flat[0])) if self.training or torch.is_grad_enabled() else PIECE
        with self._autocast(first.device.type):
            outputs = [network(*piece) for piece in zip(*(x.split(size) for x in flat), strict=True)]
        whole = outputs[0] if len(outputs) == 1 else pytree.tree_map(lambda *parts: torch.cat(parts), *outputs)
        return map_tensors(lambda t: t.to(first.dtype).unflatten(0, first.shape[:2]), whole)

    def _autocast(self, device: str) -> AbstractContextManager[Any]:
        return torch.autocast(device, torch.bfloat16, enabled=self.bf16)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


def answers(examples: Examples) -> Tensor:
    """What predictions are judged by: y, or x itself where there is none."""
    return examples.x if examples.y is None else examples.y


def _channels_last(x: Tensor) -> Tensor:
    """Pictures laid out in memory as convolutions like them; anything else as it is."""
    if x.dim() != 4:
        return x
    if x.shape[1] == 1:  # both layouts are the same memory then, and only strides tell convolutions which one is meant
        return x.contiguous().squeeze(1).unsqueeze(-1).movedim(-1, 1)
    return x.contiguous(memory_format=torch.channels_last)
