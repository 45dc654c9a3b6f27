"""Task types: what an image source asks about its pictures. A function of pictures and `rng`; it knows no data set.

Each turns pictures in [-1, 1], laid out by episode, task and example, into inputs and targets.
"""

import math
from typing import ClassVar, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from sbmcl.data.episodes import Kind, TaskName

Pictures = Float[Tensor, "b k n c h w"]
Items = Shaped[Tensor, "b k n *item"]
Targets = Shaped[Tensor, "b k n *y"]


@runtime_checkable
class Task(Protocol):
    kind: ClassVar[Kind]

    def shapes(self, picture: tuple[int, ...], /) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of one x and one y, given that of a picture."""
        ...

    def __call__(self, pictures: Items, rng: torch.Generator, /) -> tuple[Tensor, Targets | None]: ...


class Classification:
    """y is the class's place in the episode; x may be a vector too."""

    kind: ClassVar[Kind] = "classes"

    def shapes(self, picture: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return picture, ()

    def __call__(self, pictures: Items, rng: torch.Generator) -> tuple[Tensor, Targets]:
        b, k, n = pictures.shape[:3]
        return pictures, torch.arange(k, device=pictures.device).view(1, k, 1).expand(b, k, n)


class Generation:
    """There is no y: the pictures themselves are what is learned, averaged down to `size` pixels a side if that is given."""

    kind: ClassVar[Kind] = "generation"

    def __init__(self, size: int | None = None):
        self.size = size

    def shapes(self, picture: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self.size is None:
            return picture, ()
        channels, height, width = picture
        if height != width or height % self.size:
            raise ValueError(f"pictures of {height} x {width} cannot be averaged down to {self.size} x {self.size}")
        return (channels, self.size, self.size), ()

    def __call__(self, pictures: Pictures, rng: torch.Generator) -> tuple[Tensor, None]:
        if self.size is None:
            return pictures, None
        small = F.avg_pool2d(pictures.flatten(0, 2), pictures.shape[-1] // self.size)
        return small.unflatten(0, pictures.shape[:3]), None


class Binarised(Generation):
    """As `Generation`, of pixels that are -1 or 1: each is white by chance, the lighter the likelier.

    A pixel p in [-1, 1] is white with probability max(0, p), so all that is darker than mid-grey is ink.
    """

    kind: ClassVar[Kind] = "binary"

    def __call__(self, pictures: Pictures, rng: torch.Generator) -> tuple[Tensor, None]:
        chance = torch.rand(pictures.shape, generator=rng, device=rng.device).to(pictures.device)
        return 2.0 * (chance < pictures) - 1.0, None


class Completion:
    """x is the upper half of a picture, y the lower one."""

    kind: ClassVar[Kind] = "image"

    def shapes(self, picture: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        channels, height, width = picture
        if height % 2:
            raise ValueError(f"only pictures of even height can be halved, but these are {height} x {width}")
        half = (channels, height // 2, width)
        return half, half

    def __call__(self, pictures: Pictures, rng: torch.Generator) -> tuple[Tensor, Targets]:
        upper, lower = pictures.chunk(2, dim=-2)
        return upper, lower


class Rotation:
    """x is a picture turned counter-clockwise by an angle drawn for it alone, y the cosine and sine of that angle.

    With `offset` the target is that angle plus one drawn for the class and episode, so that the stream has to be learned:
    as published the offset is added to the applied angle too, where it changes nothing (deviation D25).
    """

    kind: ClassVar[Kind] = "angle"

    def __init__(self, *, offset: bool = False):
        self.offset = offset

    def shapes(self, picture: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return picture, (2,)

    def __call__(self, pictures: Pictures, rng: torch.Generator) -> tuple[Tensor, Targets]:
        b, k, n = pictures.shape[:3]
        angle = 2 * math.pi * torch.rand(b, k, n, generator=rng, device=rng.device).to(pictures.device)
        turned = rotate(pictures.flatten(0, 2), angle.flatten()).view_as(pictures)
        if self.offset:
            angle = angle + 2 * math.pi * torch.rand(b, k, 1, generator=rng, device=rng.device).to(pictures.device)
        return turned, torch.stack([angle.cos(), angle.sin()], dim=-1)


def rotate(pictures: Float[Tensor, "n c h w"], angle: Float[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
    """Turn each picture counter-clockwise about its centre, nearest neighbour, with white (+1) where nothing was."""
    cos, sin = angle.cos(), angle.sin()
    zero = torch.zeros_like(angle)
    back = torch.stack([torch.stack([cos, -sin, zero], -1), torch.stack([sin, cos, zero], -1)], dim=1)
    grid = F.affine_grid(back, list(pictures.shape), align_corners=False)
    return F.grid_sample(pictures - 1, grid, mode="nearest", padding_mode="zeros", align_corners=False) + 1


def task_named(name: TaskName) -> Task:
    match name:
        case "classification":
            return Classification()
        case "completion":
            return Completion()
        case "generation" | "generation-16":
            return Generation(16 if name == "generation-16" else None)
        case "binarised":
            return Binarised()
        case "rotation" | "rotation-offset":
            return Rotation(offset=name == "rotation-offset")
