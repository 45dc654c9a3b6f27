"""Episodes from a store, by index arithmetic: no Python loop ever runs over classes, examples or episodes.

Knows stores and task types. A subclass says what happens to the examples drawn before the task sees them.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from sbmcl.data.episodes import EpisodeShape, Kind
from sbmcl.data.store import Store
from sbmcl.data.tasks import Task
from sbmcl.episode import Episode, episode_of_tasks


class StoreEpisodes(ABC):
    """Episodes of `classes` (all, unless given) of a store; `orientations` makes several classes out of each.

    The examples move to `device` once, unless they would fill more than half of it: then they stay where they are, and
    only what is drawn moves.
    """

    def __init__(
        self,
        store: Store,
        classes: Int[Tensor, "k"] | None,
        task: Task,
        *,
        orientations: int = 1,
        query_cap: int,
        device: torch.device | str,
    ):
        chosen = torch.arange(len(store.class_names)) if classes is None else classes
        self.store = store
        self.items = _resident(store.items, torch.device(device))
        self.starts = store.starts[chosen].to(device)
        self.counts = store.counts[chosen].to(device)
        self.fewest = int(self.counts.min()) if len(chosen) else 0
        self.orientations = orientations
        self.query_cap = query_cap
        self.task = task
        self.x_shape, self.y_shape = task.shapes(store.item_shape)
        self.kind: Kind = task.kind

    @abstractmethod
    def prepare(
        self, items: Shaped[Tensor, "b k n *item"], orientation: Int[Tensor, "b k"], rng: torch.Generator
    ) -> Tensor:
        """Examples as the task wants them, on the device of `rng`."""

    @property
    def classes(self) -> int:
        return len(self.starts) * self.orientations

    def check(self, shape: EpisodeShape) -> None:
        """Say before any work starts whether such episodes can be drawn at all."""
        if shape.tasks > self.classes:
            raise ValueError(
                f"{self.store.name} has {self.classes} classes here, fewer than {shape.tasks} tasks; ask for fewer tasks, or "
                f"split the classes otherwise"
            )
        if shape.shots + shape.queries > self.fewest:
            raise ValueError(
                f"{self.store.name} has classes of only {self.fewest} examples, fewer than {shape.shots} shots and "
                f"{shape.queries} queries take together; ask for fewer of either"
            )

    def draw(self, shape: EpisodeShape, batch: int, rng: torch.Generator) -> Episode:
        self.check(shape)
        every = torch.full((batch,), self.classes, device=rng.device)
        chosen = distinct(every, shape.tasks, rng)
        place, orientation = chosen // self.orientations, chosen % self.orientations
        within = distinct(self.counts.to(rng.device)[place], shape.shots + shape.queries, rng)
        rows = self.starts.to(rng.device)[place].unsqueeze(-1) + within
        items = self.items[rows.to(self.items.device)].to(rng.device, non_blocking=True)
        x, y = self.task(self.prepare(items, orientation, rng), rng)
        return episode_of_tasks(x, y, shape.shots)


def distinct(sizes: Int[Tensor, "*b"], n: int, rng: torch.Generator) -> Int[Tensor, "*b n"]:
    """`n` different numbers below each size (all at least n), in random order.

    Numbers are drawn independently and repeats passed over, which is what drawing without replacement means. The cost
    follows n, not the size: a class may have a million examples.
    """
    below = sizes.flatten().unsqueeze(1)
    drawn, more = below.new_empty(len(below), 0), 2 * n
    while True:
        # Remainders of 62 random bits: uniform to within size / 2^62
        fresh = torch.randint(1 << 62, (len(below), more), generator=rng, device=rng.device) % below
        drawn = torch.cat([drawn, fresh], dim=1)
        first = _first_of_each(drawn)
        if bool((first.sum(1) >= n).all()):
            break
        more = drawn.shape[1]
    return drawn[first & (first.cumsum(1) <= n)].view(*sizes.shape, n)


def _first_of_each(numbers: Int[Tensor, "r m"]) -> Bool[Tensor, "r m"]:
    """Where a number has not stood earlier in its row."""
    ordered, place = numbers.sort(dim=1, stable=True)
    repeated = ordered[:, 1:] == ordered[:, :-1]
    return torch.ones_like(numbers, dtype=torch.bool).scatter_(1, place[:, 1:], ~repeated)


def _resident(items: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda" and items.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return items
    return items.to(device)
