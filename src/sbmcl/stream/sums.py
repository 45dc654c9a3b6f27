"""Sums of what examples contribute: one row a key, room for more made by doubling, as floats or as exact integers.

Knows rows of numbers, not what they mean. The first column of a row counts its examples, so an empty row is known.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

Rows = Shaped[Tensor, "m w"]


@dataclass(frozen=True)
class Grid:
    """Fixed-point numbers, so that sums of them are exact in any order.

        codes          whole multiples of 2^-bits, below 2^(24-bits) in size
        contributions  whole multiples of 2^-(2 bits + 1): what the natural parameters add is 1, 1/2, x, x^2/2 or x x^T
        sums           such multiples as 64-bit integers, below 2^61; more is refused

    With 14 bits, codes are below 1024, 6e-5 apart, and a class may hold 4e9 examples or a sum of x^2/2 of 4e9.
    """

    bits: int = 14

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 0 <= self.bits <= 24:
            raise ValueError(f"a grid has 0 to 24 bits after the point, but got {self.bits}")

    def rounded(self, codes: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        whole = (codes.double() * 2**self.bits).round()
        if whole.numel() and float(whole.abs().max()) > LARGEST_CODE:
            raise ValueError(
                f"a number of {float(codes.abs().max()):.4g} does not fit the grid, which ends at {2 ** (24 - self.bits)}; "
                f"scale your inputs, take fewer bits (grid={max(0, self.bits - 4)}), or exact=False"
            )
        return whole / 2**self.bits

    def at_once(self, codes: Float[Tensor, "n d"]) -> int:
        """How many examples a float64 adds up without rounding: all partial sums stay below 2^53 units."""
        whole = float(codes.abs().max()) * 2**self.bits if codes.numel() else 0.0
        return int(2**53 // max(1.0, whole * whole))

    def to_units(self, sums: Float[Tensor, "m w"]) -> Int[Tensor, "m w"]:
        return (sums * 2.0 ** (2 * self.bits + 1)).long()

    def from_units(self, units: Int[Tensor, "m w"]) -> Float[Tensor, "m w"]:
        return units.double() * 2.0 ** -(2 * self.bits + 1)


LARGEST_CODE = 1 << 24
LARGEST_SUM = 1 << 61


@dataclass(frozen=True)
class Change:
    """What some rows are going to be, worked out and checked before anything is touched."""

    keys: list[Hashable]
    at: Int[Tensor, "m"]
    after: Rows


class Sums:
    """A table of `width` columns. `place` says which row is whose; rows given up are used again."""

    def __init__(self, width: int, grid: Grid | None):
        self.grid = grid
        self.place: dict[Hashable, int] = {}
        self._free: dict[int, None] = {}  # in the order in which they were given up
        self._used = 0  # rows that ever had an owner
        self._table = torch.zeros(1, width, dtype=torch.float64 if grid is None else torch.int64)

    @property
    def dtype(self) -> torch.dtype:
        return self._table.dtype

    def rows(self, keys: Iterable[Hashable]) -> Rows:
        return self._table[[self.place[key] for key in keys]]

    def values(self, keys: Iterable[Hashable]) -> Float[Tensor, "m w"]:
        rows = self.rows(keys)
        return rows if self.grid is None else self.grid.from_units(rows)

    def examples(self, key: Hashable) -> int:
        count = int(self._table[self.place[key], 0])
        return count if self.grid is None else count >> (2 * self.grid.bits + 1)

    def plan(self, keys: list[Hashable], added: Rows) -> Change:
        """The rows of these keys with this much more in them; a key not met yet has an empty row."""
        new = sum(key not in self.place for key in keys)
        self._reserve(self._used + max(0, new - len(self._free)))
        fresh = chain(self._free, range(self._used, len(self._table)))
        at = torch.tensor([self.place[key] if key in self.place else next(fresh) for key in keys])
        return Change(keys, at, checked(self._table[at] + added, self.grid))

    def apply(self, change: Change) -> None:
        self._table[change.at] = change.after
        for key, row in zip(change.keys, change.at.tolist(), strict=True):
            if key not in self.place:
                self.place[key] = row
                self._free.pop(row, None)
                self._used = max(self._used, row + 1)
        emptied = change.after[:, 0] == 0
        if bool(emptied.any()):
            self.drop([key for key, empty in zip(change.keys, emptied.tolist(), strict=True) if empty])

    def drop(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            row = self.place.pop(key)
            self._table[row] = 0
            self._free[row] = None

    def _reserve(self, rows: int) -> None:
        if rows > len(self._table):
            grown = self._table.new_zeros(max(rows, 2 * len(self._table)), self._table.shape[1])
            grown[: self._used] = self._table[: self._used]
            self._table = grown


def checked(rows: Rows, grid: Grid | None) -> Rows:
    """Rows that may be: no sum too large, no example taken away that was not there."""
    if grid is not None and rows.numel() and not -LARGEST_SUM <= int(rows.min()) <= int(rows.max()) <= LARGEST_SUM:
        raise ValueError(
            f"a sum would leave the grid of {grid.bits} bits, which ends at {LARGEST_SUM / 2 ** (2 * grid.bits + 1):.3g}; "
            f"nothing was learned. Take fewer bits (grid=...) or exact=False"
        )
    counts = rows[:, 0]
    nothing_left = rows[counts == 0] if grid is not None else rows[:0]
    if bool((counts < 0).any()) or bool((nothing_left != 0).any()):
        raise ValueError(
            "these are not examples that were learned under this label and source, so they cannot be forgotten; nothing "
            "was changed"
        )
    return rows
