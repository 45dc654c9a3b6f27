"""Several processes that train as one; torchrun starts them, and each takes its share of every step's episodes.

    torchrun --nproc-per-node 2 -m sbmcl train RECIPE

Every process draws the same episodes and keeps its share, batch-norm compares the examples of all, gradients are averaged
before the optimiser's step; so the weights stay the same everywhere, and are those that one process would have got. Only
what a method itself draws at random in a step (z, label codes, dropout) differs from process to process.

One process alone is a team of one, for which nothing here does anything.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sbmcl.beliefs.base import Belief
from sbmcl.beliefs.classes import ClassBelief
from sbmcl.episode import Episode
from sbmcl.state import map_tensors

T = TypeVar("T")
B = TypeVar("B", bound=Belief)


class Deserted(RuntimeError):
    """Another process of the team is gone."""


@dataclass(frozen=True)
class Team:
    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> "Team":
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def share(self, episode: Episode) -> Episode:
        """This process's part of episodes side by side."""
        if self.size == 1:
            return episode
        each = episode.size // self.size
        return map_tensors(lambda t: t[self.rank * each : (self.rank + 1) * each], episode)

    def check(self, episodes: int) -> None:
        if episodes % self.size:
            raise ValueError(
                f"{episodes} episodes a step cannot be shared evenly by {self.size} processes; set --training.episodes to "
                f"a multiple of {self.size}"
            )

    def average(self, values: list[Tensor]) -> None:
        """Put the mean over all processes in the place of each."""
        if self.size == 1 or not values:
            return
        means = _sum(torch.cat([value.flatten() for value in values])) / self.size
        for value, mean in zip(values, means.split([v.numel() for v in values]), strict=True):
            value.copy_(mean.view_as(value))

    def mean_of(self, values: dict[str, float]) -> dict[str, float]:
        means = torch.tensor(list(values.values()), dtype=torch.float64)
        self.average([means])
        return dict(zip(values, means.tolist(), strict=True))

    def any(self, asked: bool) -> bool:
        flag = torch.tensor(float(asked))
        self.average([flag])
        return bool(flag)

    def wait(self) -> None:
        """Until all have come here."""
        if self.size > 1:
            with _noticing_loss():
                dist.barrier()

    def agreed(self, value: T) -> T:
        """What the leading process says."""
        if self.size == 1:
            return value
        box: list[Any] = [value]
        with _noticing_loss():
            dist.broadcast_object_list(box)
        return box[0]

    def pooled(self, belief: B, *, prior: B) -> B:
        """What all processes know together that started from the same prior: the sum of what each has learned."""
        if self.size == 1:
            return belief
        mine, start = belief, prior
        if isinstance(belief, ClassBelief):  # each may have met other classes
            most = torch.tensor(belief.classes, device=belief.shift.device)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            mine, start = (cast(Any, known).grow(int(most), prior) for known in (belief, prior))

        return start.observe(map_tensors(_sum, mine.retract(start)))


@contextmanager
def joined(device: torch.device) -> Iterator[Team]:
    """Join the team that torchrun has started, if it has; the device is one of those of this machine."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Team()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Team.current()
    finally:
        dist.destroy_process_group()


def share_statistics(network: nn.Module) -> None:
    """Let every batch-norm compare the examples of all processes in training."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.__class__ = SharedBatchNorm  # pyright: ignore[reportAttributeAccessIssue]


class SharedBatchNorm(nn.BatchNorm2d):
    """Mean and variance over the examples of all processes; each brings as many. torch's own one needs a GPU."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        size = dist.get_world_size()
        rest = [axis for axis in range(input.dim()) if axis != 1]
        x, shape = input.float(), [-1 if axis == 1 else 1 for axis in range(input.dim())]
        mean = cast(Tensor, Summed.apply(x.mean(rest))) / size
        centred = x - mean.view(shape)
        variance = cast(Tensor, Summed.apply(centred.square().mean(rest))) / size
        with torch.no_grad():
            n = input.numel() // input.shape[1] * size
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((variance * n / max(n - 1, 1)).to(self.running_var.dtype), self.momentum)
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shifted = centred * scale.view(shape)
        return (shifted if self.bias is None else shifted + self.bias.view(shape)).to(input.dtype)


class Summed(torch.autograd.Function):
    """The sum over all processes. Each one's share acts on the losses of all, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, share: Tensor) -> Tensor:
        return _sum(share)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _sum(gradient)


def _sum(share: Tensor) -> Tensor:
    whole = share.contiguous().clone()
    with _noticing_loss():
        dist.all_reduce(whole)
    return whole


@contextmanager
def _noticing_loss() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise Deserted(str(error).splitlines()[0]) from error
