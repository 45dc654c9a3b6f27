"""What flows: a stream of examples to learn from, once and in order, and queries asked afterwards.

This is the one vocabulary shared by every room of the library. It knows nothing of data sets, methods or beliefs, and
everything else depends on it, so change it only with great care.
"""

from dataclasses import replace
from typing import Self

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.utils import _pytree as pytree

from sbmcl.state import map_tensors, state


@state
class Examples:
    """`b` episodes side by side, each with `n` examples in order of arrival."""

    x: Float[Tensor, "b n *x"]
    y: Shaped[Tensor, "b n *y"] | None  # None: unsupervised
    task: Int[Tensor, "b n"]  # which task an example belongs to; for scoring and plots, no SB-MCL learner reads it

    def __len__(self) -> int:
        return self.x.shape[1]

    @property
    def targets(self) -> Shaped[Tensor, "b n *y"]:
        """y, where there has to be one."""
        if self.y is None:
            raise ValueError("these examples have no targets, but what is done with them needs some")
        return self.y

    def __getitem__(self, span: slice) -> Self:
        """A part of the stream; the episodes stay side by side."""
        y = None if self.y is None else self.y[:, span]
        return replace(self, x=self.x[:, span], y=y, task=self.task[:, span])


@state
class Episode:
    stream: Examples  # seen once, in order
    query: Examples  # asked afterwards

    @property
    def size(self) -> int:
        """How many episodes lie side by side."""
        return self.stream.x.shape[0]

    def to(self, device: torch.device) -> Self:
        return map_tensors(lambda t: t.to(device, non_blocking=True), self)


def stack_episodes(episodes: list[Episode]) -> Episode:
    """Put episodes of the same shape side by side."""
    return pytree.tree_map(lambda *parts: torch.cat(parts), *episodes)


def episode_of_tasks(x: Float[Tensor, "b k n *x"], y: Shaped[Tensor, "b k n *y"] | None, shots: int) -> Episode:
    """From examples laid out by task: the first `shots` of each are the stream, task after task, the rest the queries."""
    task = torch.arange(x.shape[1], device=x.device).view(1, -1, 1).expand(x.shape[:3])

    def part(span: slice) -> Examples:
        def flat(t: Tensor) -> Tensor:
            return t[:, :, span].flatten(1, 2)

        return Examples(flat(x), None if y is None else flat(y), flat(task))

    return Episode(part(slice(shots)), part(slice(shots, None)))
