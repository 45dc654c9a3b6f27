"""All that was learned: sums by class, who contributed what, and a number for every class. It knows no encoder and no prior.

    by_class    key -> sum of all contributions
    by_source   (source, key) -> the part of it that a named source contributed; what has no source is the rest

A key is a class; a regression has one key for everything.
"""

import hashlib
import json
from collections.abc import Callable, Hashable

import torch
from jaxtyping import Int, Shaped
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

    def unnamed(self, keys: list[Hashable]) -> Rows:
        """What came without the name of a source."""
        at = {key: row for row, key in enumerate(keys)}
        named = [(source, key) for source, of in self.keys_of.items() for key in of if key in at]
        places = torch.tensor([at[key] for _, key in named], dtype=torch.long)
        return self.by_class.rows(keys).index_add(0, places, self.by_source.rows(named), alpha=-1)

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
        known = all(key in self.by_class.place for key in keys)
        checked(self.unnamed(keys) - taken if known else -taken, self.grid)

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

    def restore(
        self,
        keys: list[Hashable],
        sources: list[Hashable],
        by_class: Rows,
        by_source: Shaped[Tensor, "r w"],
        place: Int[Tensor, "r 2"],
        ids: list[int],
        next_id: int,
    ) -> None:
        """What a file says, unless it cannot be: row r of `by_source` is of source place[r, 0] and key place[r, 1]."""
        ends = torch.tensor([len(sources), len(keys)])
        pairwise = place.shape == (len(by_source), 2) and place.dtype == torch.int64
        if not pairwise or bool((place < 0).any()) or bool((place >= ends).any()):
            raise ValueError("its ledger names classes or sources that it does not have")
        pairs = [(sources[s], keys[k]) for s, k in place.tolist()]
        numbered = len(set(ids)) == len(ids) == len(keys) and all(type(i) is int and 0 <= i < next_id for i in ids)
        twice = len({*pairs}) < len(pairs) or len({*keys}) < len(keys) or len({s for s, _ in pairs}) < len(sources)
        if twice or not numbered:
            raise ValueError("its classes, sources and numbers do not fit together")
        ledger: list[Hashable] = [*pairs]
        for sums, names, rows in ((self.by_class, keys, by_class), (self.by_source, ledger, by_source)):
            fits = rows.shape == (len(names), self.width) and rows.dtype == sums.dtype
            if not fits or not bool((rows[:, 0] > 0).all()) or not bool(torch.isfinite(rows).all()):
                raise ValueError("its sums are not such as a learner has")
            if names:
                sums.apply(sums.plan(names, rows))
        for source, key in pairs:
            self.keys_of.setdefault(source, set()).add(key)
        self.ids, self.next_id = dict(zip(keys, ids, strict=True)), next_id
        checked(self.unnamed(keys), self.grid)

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
