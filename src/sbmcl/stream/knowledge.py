"""All that was learned: sums by class, who contributed what, and a number for every class. It knows no encoder and no prior.

    by_class    key -> sum of all contributions
    by_source   (source, key) -> the part of it that a named source contributed; what has no source is the rest

A key is a class; a regression has one key for everything.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable

import torch
from jaxtyping import Shaped
from torch import Tensor

from sbmcl.stream.labels import place_in_order, to_json
from sbmcl.stream.sums import Grid, Rows, Sums, checked


class Knowledge:
    def __init__(self, width: int, grid: Grid | None):
        self.width, self.grid = width, grid
        self.by_class, self.by_source = Sums(width, grid), Sums(width, grid)
        self.keys_of: dict[Hashable, set[Hashable]] = {}  # by source
        self.ids: dict[Hashable, int] = {}
        self.next_id = 0

    def keys(self) -> list[Hashable]:
        """In the one order that does not depend on the order of arrival."""
        return sorted(self.by_class.place, key=place_in_order)

    def sources(self) -> list[Hashable]:
        return sorted(self.keys_of, key=place_in_order)

    def ledger(self) -> list[Hashable]:
        """The keys of `by_source`, in order."""
        return [(source, key) for source in self.sources() for key in self.keys_from(source)]

    def keys_from(self, source: Hashable) -> list[Hashable]:
        if source not in self.keys_of:
            raise ValueError(f"nothing was learned from a source {source!r}")
        return sorted(self.keys_of[source], key=place_in_order)

    def from_source(self, source: Hashable) -> Rows:
        """What a source contributed, in the order of `keys_from`."""
        return self.by_source.rows((source, key) for key in self.keys_from(source))

    def unnamed(self, keys: Iterable[Hashable]) -> Rows:
        """What came without the name of a source."""
        return torch.stack([self._unnamed(key) for key in keys]) if self.by_class.place else self._nothing(0)

    def change(
        self, keys: list[Hashable], added: Rows, source: Hashable, *, record: Callable[[], None] | None = None
    ) -> None:
        """Work out and check everything, `record` it, then do it: there is no half of a change."""
        if not keys:
            return
        by_class, by_source = self.by_class.plan(keys, added), None
        if source is not None:
            by_source = self.by_source.plan([(source, key) for key in keys], added)
        if record is not None:
            record()
        self.by_class.apply(by_class)
        if by_source is not None:
            self.by_source.apply(by_source)
            self._list(source, keys)
        for key in keys:
            if key not in self.by_class.place:
                del self.ids[key]
            elif key not in self.ids:
                self.ids[key] = self.next_id
                self.next_id += 1

    def check_unnamed(self, keys: list[Hashable], taken: Rows) -> None:
        """That this much is there to be taken without the name of a source."""
        there = [self._unnamed(key) if key in self.by_class.place else self._nothing(1)[0] for key in keys]
        checked(torch.stack(there) - taken, self.grid)

    def absorb(self, other: "Knowledge") -> None:
        keys = other.keys()
        rows = other.unnamed(keys)
        some = rows[:, 0] != 0
        self.change([key for key, any_ in zip(keys, some.tolist(), strict=True) if any_], rows[some], None)
        for source in other.sources():
            self.change(other.keys_from(source), other.from_source(source), source)

    def copy(self) -> "Knowledge":
        """The same, class numbers too."""
        found = Knowledge(self.width, self.grid)
        found.ids, found.next_id = dict(self.ids), self.next_id
        found.absorb(self)
        return found

    def difference(self, other: "Knowledge") -> float:
        """The largest of two sums, relative to the largest sum; infinite where classes, sources or counts differ."""
        worst = 0.0
        for mine, theirs in ((self.by_class, other.by_class), (self.by_source, other.by_source)):
            if mine.place.keys() != theirs.place.keys():
                return float("inf")
            a, b = mine.values(mine.place), theirs.values(mine.place)
            if not torch.equal(a[:, 0], b[:, 0]):
                return float("inf")
            if len(a):
                worst = max(worst, float((a - b).abs().max() / b.abs().max()))
        return worst

    def digest(self, model: str) -> str:
        """A hash of all sums and whose they are; class numbers, which depend on the order of arrival, are left out."""
        found = hashlib.sha256(model.encode())
        for sums, keys in ((self.by_class, self.keys()), (self.by_source, self.ledger())):
            found.update(json.dumps([to_json(key) for key in keys]).encode())
            found.update(sums.rows(keys).numpy().tobytes())
        return found.hexdigest()

    def _list(self, source: Hashable, keys: list[Hashable]) -> None:
        listed = self.keys_of.setdefault(source, set())
        for key in keys:
            (listed.add if (source, key) in self.by_source.place else listed.discard)(key)
        if not listed:
            del self.keys_of[source]

    def _unnamed(self, key: Hashable) -> Shaped[Tensor, "w"]:
        named = [(source, key) for source, keys in self.keys_of.items() if key in keys]
        return self.by_class.rows([key])[0] - self.by_source.rows(named).sum(0)

    def _nothing(self, rows: int) -> Rows:
        return self.by_class.rows([]).new_zeros(rows, self.width)
