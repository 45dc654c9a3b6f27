"""Tables of vectors: CSV or Parquet, one row an example, a column of labels and the rest numbers.

A Parquet column may also hold a whole vector (a list of numbers) in each row, as tools that make embeddings write them.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sbmcl.data.reading import Classed, Problems, batched, grouped

ROWS = 4096
"""Read at a time."""
LONGEST = 1 << 20
"""Characters of one field of a CSV file."""

Row = tuple[str, list[float]]


def read(path: Path, problems: Problems, *, label: str | None = "label", targets: tuple[str, ...] = ()) -> Classed:
    """Rows by label; without a column of labels, all of them under no name, in order.

    Columns named in `targets` are put last, where a regression looks for what it has to predict.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    rows = (
        _parquet(path, problems, label, targets) if path.suffix == ".parquet" else _csv(path, problems, label, targets)
    )
    for batch in batched(rows, ROWS):
        yield from grouped([name for name, _ in batch], np.array([numbers for _, numbers in batch], np.float32))


def _csv(path: Path, problems: Problems, label: str | None, targets: tuple[str, ...]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        try:
            header = next(reader, [])
            place, order = _columns(path, header, label, targets)
            for fields in reader:
                where = f"{path}: line {reader.line_num}"
                if len(fields) != len(header):
                    problems.add(
                        where, "has another number of fields than the first line", f"{len(fields)}, {len(header)}"
                    )
                    continue
                try:
                    numbers = [float(fields[column]) for column in order]
                except ValueError as error:
                    problems.add(where, "has a field that is no number", str(error))
                    continue
                if all(map(_fits, numbers)):
                    yield "" if place is None else fields[place], numbers
                else:
                    problems.add(where, "has numbers that are not finite")
        except csv.Error as error:
            raise ValueError(f"{path}: line {reader.line_num}: {error}") from error


def _parquet(path: Path, problems: Problems, label: str | None, targets: tuple[str, ...]) -> Iterator[Row]:
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("Parquet needs pyarrow: pip install 'sbmcl[data]'; a CSV file needs nothing") from error
    try:
        file = parquet.ParquetFile(path)
        place, order = _columns(path, file.schema_arrow.names, label, targets)
        width, first = None, 0
        for batch in file.iter_batches(ROWS):
            columns = [batch.column(column).to_pylist() for column in order]
            names = [""] * len(batch) if place is None else batch.column(place).to_pylist()
            for row, (name, *fields) in enumerate(zip(names, *columns, strict=True)):
                numbers = _flat(fields)
                width = len(numbers) if width is None and numbers else width
                if name is None or numbers is None or len(numbers) != width or not all(map(_fits, numbers)):
                    problems.add(f"{path}: row {first + row}", "has no label, or not the same count of finite numbers")
                else:
                    yield str(name), numbers
            first += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no Parquet file: {error}") from error


def _columns(
    path: Path, header: list[str], label: str | None, targets: tuple[str, ...]
) -> tuple[int | None, list[int]]:
    """The place of the label, if there is one, and those of the numbers in the order they are kept."""
    for name in targets if label is None else (label, *targets):
        if header.count(name) != 1:
            raise ValueError(
                f"{path} has {header.count(name)} columns called {name!r}; its columns are {', '.join(header[:20])}"
                f"{', ...' if len(header) > 20 else ''}. Name the one that holds the classes with --label"
            )
    inputs = [name for name in header if name != label and name not in targets]
    if not inputs or len(set(header)) < len(header):
        raise ValueError(f"{path} needs columns of numbers beside {label or 'targets'!r}, each with a name of its own")
    return None if label is None else header.index(label), [header.index(name) for name in (*inputs, *targets)]


def _flat(fields: list[object]) -> list[float] | None:
    """Numbers, and lists of numbers, one after the other; None if there is anything else."""
    numbers: list[float] = []
    for field in fields:
        for value in field if isinstance(field, list) else [field]:
            if not isinstance(value, int | float):
                return None
            numbers.append(float(value))
    return numbers


def _fits(number: float) -> bool:
    return math.isfinite(number) and abs(number) < 3.4e38
