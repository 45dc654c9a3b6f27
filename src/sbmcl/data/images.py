"""Image sources: classes of pictures in one uint8 tensor, and episodes drawn from them by index arithmetic.

Knows pictures and class names, not where they came from: `omniglot` and other sources fill an `ImageStore`. No Python
loop ever runs over images or episodes.
"""

import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from sbmcl.data.episodes import EpisodeShape, Kind
from sbmcl.data.tasks import Classification, Task
from sbmcl.episode import Episode, episode_of_tasks

STORE_FORMAT = "sbmcl-image-store/1"


@dataclass(frozen=True)
class ImageStore:
    """All pictures of a data set, sorted by class: class `c` holds rows `starts[c]` to `starts[c + 1]`."""

    name: str
    images: UInt8[Tensor, "n c h w"]
    starts: Int[Tensor, "k1"]
    class_names: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Atomic: the file is whole or not there."""
        header = {"format": STORE_FORMAT, "name": self.name, "classes": json.dumps(self.class_names)}
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(save({"images": self.images, "starts": self.starts}, header))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "ImageStore":
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                if header.get("format") != STORE_FORMAT:
                    raise ValueError(f"it says {header.get('format')!r} where {STORE_FORMAT!r} was expected")
                images, starts = file.get_tensor("images"), file.get_tensor("starts")
        except Exception as error:
            raise ValueError(f"{path} is no image store that this version reads: {error}. Prepare it again.") from error
        return cls(header["name"], images, starts, tuple(json.loads(header["classes"])))


@dataclass(frozen=True)
class Jitter:
    """Random affine motion of meta-training pictures, uniform in the given ranges."""

    degrees: float = 0.0
    shear: float = 0.0  # degrees
    scale: float = 0.0  # 0.1 means 0.9 to 1.1, each axis by itself
    shift: float = 0.0  # as a share of the picture's width

    def __bool__(self) -> bool:
        return any((self.degrees, self.shear, self.scale, self.shift))


class ImageEpisodes:
    """Episodes of pictures in [-1, 1]: a class of an episode is one of its tasks, and `task` says what is asked about it.

    `orientations` 8 makes eight classes out of each, one for every rotation by a quarter turn with and without a mirror
    (the reference repeats some and misses others, SPEC D24).
    """

    query_cap: int

    def __init__(
        self,
        store: ImageStore,
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
        chosen = torch.arange(len(store.class_names)) if classes is None else classes
        self.store = store
        self.images = store.images.to(device)
        self.starts = store.starts[chosen].to(device)
        self.counts = (store.starts[chosen + 1] - store.starts[chosen]).to(device)
        self.fewest = int(self.counts.min()) if len(chosen) else 0
        self.orientations = orientations
        self.jitter = jitter
        self.query_cap = query_cap
        self.task = task or Classification()
        picture = tuple(store.images.shape[1:])
        self.x_shape, self.y_shape = self.task.shapes(picture)
        self.kind: Kind = self.task.kind
        self.turns = _orientation_indices(*picture[1:]).to(device) if orientations == 8 else None

    @property
    def classes(self) -> int:
        return len(self.starts) * self.orientations

    def check(self, shape: EpisodeShape) -> None:
        """Say before any work starts whether such episodes can be drawn at all."""
        if shape.tasks > self.classes:
            raise ValueError(f"{self.store.name} has {self.classes} classes here, fewer than {shape.tasks} tasks")
        if shape.shots + shape.queries > self.fewest:
            raise ValueError(
                f"{self.store.name} has classes of only {self.fewest} images, fewer than {shape.shots} shots and "
                f"{shape.queries} queries take together; ask for fewer of either"
            )

    def draw(self, shape: EpisodeShape, batch: int, rng: torch.Generator) -> Episode:
        self.check(shape)
        each, to = shape.shots + shape.queries, self.images.device
        chosen = _distinct(torch.full((batch,), self.classes, device=rng.device), shape.tasks, rng)
        place, turn = chosen // self.orientations, chosen % self.orientations
        counts = self.counts.to(rng.device)[place]
        rows = self.starts.to(rng.device)[place].unsqueeze(-1) + _distinct(counts, each, rng)
        x = self.images[rows.to(to)]
        if self.turns is not None:
            index = self.turns[turn.to(to)].unsqueeze(2).unsqueeze(2).expand(-1, -1, each, x.shape[3], -1)
            x = x.flatten(-2).gather(-1, index).view_as(x)
        x = x.float() / 127.5 - 1
        if self.jitter:
            x = _jittered(x, self.jitter, rng)
        x, y = self.task(x, rng)
        return episode_of_tasks(x, y, shape.shots)


def _distinct(sizes: Int[Tensor, "*b"], n: int, rng: torch.Generator) -> Int[Tensor, "*b n"]:
    """`n` different numbers below each size, in random order: the largest of as many random keys as there are numbers."""
    keys = torch.rand((*sizes.shape, int(sizes.max())), generator=rng, device=sizes.device)
    keys.masked_fill_(torch.arange(keys.shape[-1], device=keys.device) >= sizes.unsqueeze(-1), -1.0)
    return keys.topk(n, dim=-1).indices


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
