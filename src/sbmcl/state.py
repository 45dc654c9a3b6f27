"""States: immutable trees of tensors, and the few things one does with any of them.

A state is what a method remembers of a stream. Whoever writes a new one decorates it with `@state`; torch.func, saving,
counting bytes and moving between devices then work without another line.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def state(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass that every tree function of torch sees through."""
    cls = dataclass(frozen=True)(cls)
    pytree.register_dataclass(cls)
    return cls


def shared() -> Any:
    """A field that is part of the model and the same for everyone: it is carried along, never added up."""
    return field(metadata={"shared": True})


def map_tensors(function: Callable[[Tensor], Tensor], tree: T) -> T:
    return pytree.tree_map_only(Tensor, function, tree)


def tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def state_bytes(tree: object) -> int:
    """What the state costs to keep: the size of its tensors' elements (views of one number count once)."""
    return sum(_distinct_elements(t) * t.element_size() for t in tensors(tree))


def _distinct_elements(tensor: Tensor) -> int:
    """An expanded prior repeats numbers without storing them; only those that exist are counted."""
    return torch.Size(n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or n == 0).numel()
