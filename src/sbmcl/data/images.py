"""Episodes of pictures: turned and mirrored into more classes, jittered, and handed to a task type in [-1, 1].

Knows pictures, not where they came from.
"""

import hashlib
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from sbmcl.data.sampler import StoreEpisodes
from sbmcl.data.store import Store
from sbmcl.data.tasks import Classification, Task


@dataclass(frozen=True)
class Jitter:
    """Random affine motion of meta-training pictures, uniform in the given ranges."""

    degrees: float = 0.0
    shear: float = 0.0  # degrees
    scale: float = 0.0  # 0.1 means 0.9 to 1.1, each axis by itself
    shift: float = 0.0  # as a share of the picture's width

    def __bool__(self) -> bool:
        return any((self.degrees, self.shear, self.scale, self.shift))


class ImageEpisodes(StoreEpisodes):
    """A class of an episode is one of its tasks, and `task` says what is asked about its pictures.

    `orientations` 8 makes eight classes out of each, one for every rotation by a quarter turn with and without a mirror
    (the reference repeats some and misses others, deviation D24).
    """

    def __init__(
        self,
        store: Store,
        classes: Int[Tensor, "k"] | None = None,
        *,
        task: Task | None = None,
        orientations: int = 1,
        jitter: Jitter | None = None,
        query_cap: int = 50,
        device: torch.device | str = "cpu",
    ):
        if orientations not in (1, 8):
            raise ValueError(f"a picture has 1 or 8 orientations, but got {orientations}")
        if store.items.dtype != torch.uint8:
            raise ValueError(f"{store.name} holds vectors, but what was asked for are pictures")
        super().__init__(
            store, classes, task or Classification(), orientations=orientations, query_cap=query_cap, device=device
        )
        self.jitter = jitter
        self.turns = _orientation_indices(*store.item_shape[1:]).to(device) if orientations == 8 else None

    def prepare(
        self, items: UInt8[Tensor, "b k n c h w"], orientation: Int[Tensor, "b k"], rng: torch.Generator
    ) -> Float[Tensor, "b k n c h w"]:
        if self.turns is not None:
            index = self.turns.to(rng.device)[orientation].unsqueeze(2).unsqueeze(2)
            items = items.flatten(-2).gather(-1, index.expand(*items.shape[:4], -1)).view_as(items)
        x = items.float() / 127.5 - 1
        return _jittered(x, self.jitter, rng) if self.jitter else x


def _orientation_indices(height: int, width: int) -> Int[Tensor, "8 hw"]:
    """Where each pixel comes from, for the eight symmetries of a square picture."""
    if height != width:
        raise ValueError(f"only square pictures can be turned, but these are {height} x {width}")
    here = torch.arange(height * width).view(height, width)
    turned = [here.rot90(quarter) for quarter in range(4)]
    return torch.stack([t.flatten() for t in turned] + [t.fliplr().flatten() for t in turned])


def _jittered(x: Float[Tensor, "b k n c h w"], jitter: Jitter, rng: torch.Generator) -> Float[Tensor, "b k n c h w"]:
    flat = x.flatten(0, 2)

    def uniform(limit: float) -> Tensor:
        return ((2 * torch.rand(len(flat), generator=rng, device=rng.device) - 1) * limit).to(x.device)

    turn, shear = (uniform(math.radians(limit)) for limit in (jitter.degrees, jitter.shear))
    wide, high = (1 + uniform(jitter.scale) for _ in range(2))
    right, down = (uniform(2 * jitter.shift) for _ in range(2))  # affine_grid measures from -1 to 1
    rows = [
        torch.stack([wide * turn.cos(), wide * (shear - turn).sin(), right], -1),
        torch.stack([high * turn.sin(), high * (shear - turn).cos(), down], -1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(flat.shape), align_corners=False)
    return F.grid_sample(flat, grid, padding_mode="border", align_corners=False).view_as(x)


def split_classes(names: tuple[str, ...], share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Class numbers without and with a held-out share, chosen by a hash of their names: stable on every machine."""

    def key(index: int) -> bytes:
        return hashlib.sha256(f"{seed}:{names[index]}".encode()).digest()

    order = sorted(range(len(names)), key=key)
    held_out = round(share * len(names))
    kept, held = order[held_out:], order[:held_out]
    return torch.tensor(sorted(kept), dtype=torch.long), torch.tensor(sorted(held), dtype=torch.long)
