"""Episodes of vectors, such as another network's embeddings: classes to tell apart, or functions to learn."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.data.episodes import Kind
from sbmcl.data.sampler import StoreEpisodes
from sbmcl.data.store import Store
from sbmcl.data.tasks import Classification, Task


class Regression:
    """The last `targets` numbers of a vector are asked, given the others; every class is a function of its own."""

    kind: ClassVar[Kind] = "vector"

    def __init__(self, targets: int):
        self.targets = targets

    def shapes(self, item: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not 0 < self.targets < item[0]:
            raise ValueError(f"vectors of {item[0]} numbers cannot have {self.targets} of them as targets")
        return (item[0] - self.targets,), (self.targets,)

    def __call__(self, items: Float[Tensor, "b k n d"], rng: torch.Generator) -> tuple[Tensor, Tensor]:
        return items[..., : -self.targets], items[..., -self.targets :]


class VectorEpisodes(StoreEpisodes):
    """`mean` and `deviation`, of every number, are taken out of the vectors before they are used."""

    def __init__(
        self,
        store: Store,
        classes: Int[Tensor, "k"] | None = None,
        *,
        task: Task | None = None,
        mean: Float[Tensor, "d"] | None = None,
        deviation: Float[Tensor, "d"] | None = None,
        query_cap: int = 50,
        device: torch.device | str = "cpu",
    ):
        if store.items.dtype != torch.float32:
            raise ValueError(f"{store.name} holds pictures, but what was asked for are vectors")
        super().__init__(store, classes, task or Classification(), query_cap=query_cap, device=device)
        self.mean = torch.zeros(()) if mean is None else mean
        self.deviation = torch.ones(()) if deviation is None else deviation

    def prepare(
        self, items: Float[Tensor, "b k n d"], orientation: Int[Tensor, "b k"], rng: torch.Generator
    ) -> Float[Tensor, "b k n d"]:
        return (items - self.mean.to(items.device)) / self.deviation.to(items.device)


def moments(store: Store, classes: Int[Tensor, "k"], sample: int = 10_000) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every number, over rows spread evenly through these classes."""
    rows = torch.cat([torch.arange(int(store.starts[c]), int(store.starts[c + 1])) for c in classes.tolist()])
    chosen = rows[torch.linspace(0, len(rows) - 1, min(sample, len(rows))).long()]
    items = store.items[chosen].double()
    deviation = items.std(0, correction=0)
    return items.mean(0).float(), torch.where(deviation > 0, deviation, 1.0).float()
