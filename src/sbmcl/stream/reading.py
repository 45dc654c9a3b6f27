"""Files of examples as batches that a learner takes: folders of pictures, arrays, tables and JSON lines.

Labels are texts, except in JSON lines, where they are what they are.
"""

import sys
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from sbmcl.data import arrays, folder, lines, table
from sbmcl.data.reading import Classed, Problems, batched
from sbmcl.stream.labels import from_json

AT_ONCE = 1_000
"""Lines of a file."""


@dataclass(frozen=True)
class Batch:
    x: Shaped[np.ndarray, "n *x"]
    y: Any
    """Labels, or targets in rows; None where there are none."""
    source: Hashable
    ids: list[Any] | None = None
    """What a line says of itself, to be said again of its answer."""


@dataclass(frozen=True)
class How:
    """What the files cannot say themselves."""

    x_shape: tuple[int, ...] | None
    """Of an example, as the learner takes it."""
    regression: bool = False
    label: str | None = None
    """The column of labels in tables."""
    targets: tuple[str, ...] = ()
    """The columns of a table that a regression predicts."""
    source: Hashable = None
    """Whom it comes from, where the data do not say."""


def batches(origin: str, how: How, problems: Problems) -> Iterator[Batch]:
    """Of one file or folder, or of standard input (`-`), where each line is a batch, as soon as it comes."""
    path = Path(origin)
    if origin == "-":
        yield from _lines(lines.read(sys.stdin, "standard input", problems), how, 1)
    elif path.suffix in (".jsonl", ".ndjson"):
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from _lines(lines.read(file, origin, problems), how, AT_ONCE)
    elif path.suffix in (".csv", ".parquet"):
        for name, items in table.read(path, problems, label=how.label, targets=how.targets):
            split = items.shape[1] - len(how.targets)
            yield _batch(how, name, items[:, :split], items[:, split:])
    elif path.suffix == ".npz" or path.is_dir():
        for name, items in _pictures_or_vectors(path, how, problems):
            yield _batch(how, name, items, items[:, :0])
    else:
        raise ValueError(
            f"{origin} is no folder of pictures and no file that is known by its ending: .npz, .csv, .parquet, .jsonl"
        )


def _pictures_or_vectors(path: Path, how: How, problems: Problems) -> Classed:
    channels, size, _ = how.x_shape if how.x_shape is not None and len(how.x_shape) == 3 else (None, 32, 32)
    if path.is_dir():
        return folder.read(path, problems, size=size, channels=channels)
    return arrays.read(path, problems, size=size, labelled=how.label is not None)


def _batch(how: How, name: str, x: np.ndarray, targets: np.ndarray) -> Batch:
    if how.regression:
        return Batch(x, targets.astype(np.float64) if targets.size else None, how.source)
    return Batch(x, [name] * len(x), how.source)


def _lines(examples: Iterable[dict[str, Any]], how: How, at_once: int) -> Iterator[Batch]:
    """Lines of one source and one shape together."""
    for some in batched(examples, at_once):
        for (source, _), group in groupby(some, key=lambda e: (_name(e.get("source"), how.source), e["x"].shape)):
            rows = list(group)
            y = None
            if all("y" in row for row in rows):
                y = [row["y"] if how.regression else from_json(row["y"]) for row in rows]
            yield Batch(np.stack([row["x"] for row in rows]), y, source, [row.get("id") for row in rows])


def _name(said: Any, otherwise: Hashable) -> Hashable:
    return otherwise if said is None else from_json(said)
