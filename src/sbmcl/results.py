"""Results: one row a run, setting and metric, appended to a `results.jsonl` and never rewritten.

The first nine keys are those of the paper's own numbers, so that both join without a table of names. Knows no torch; the
report and everything that measures meet here.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

TRAINING = "training"  # minutes of meta-training, score on validation (in the benchmark's own metric)
LEARNED = "learned_by_task"  # task in order of arrival from 1, score right after it was learned
FINAL = "final_by_task"  # task in order of arrival from 1, score at the end of the stream
AVERAGE = "average_by_task"  # tasks learned so far, mean score over them
STATE_BYTES = "state_bytes_by_length"  # examples learned, bytes of the state after them
LEARN_MS = "ms_to_learn_by_length"  # examples learned, milliseconds to learn another
QUERY_MS = "ms_to_answer_by_length"  # examples learned, milliseconds to answer a query after them
RELIABILITY = "reliability"  # mean confidence of a bin, accuracy in it
CURVES = (TRAINING, LEARNED, FINAL, AVERAGE, STATE_BYTES, LEARN_MS, QUERY_MS, RELIABILITY)
"""Metrics of rows that are drawn and not tabled: `curve` holds pairs of these, `value` their mean or last score."""
LIKENESS = "likeness"  # share of samples whose nearest drawing is of a class learned, where half of the drawings are
LIKENESS_PRIOR = "likeness_prior"  # the same of samples drawn before the stream
LIKENESS_DRAWINGS = "likeness_drawings"  # the same of real drawings


@dataclass(frozen=True)
class Row:
    benchmark: str
    method: str  # as in the paper's tables; `-map` where the mode was put in place of the belief
    meta_train: str
    meta_test: str
    tasks: int
    shots: int
    metric: str
    value: float
    std: float | None  # over episodes
    ci95: float | None  # half the width of the 95 % interval of the mean
    recipe: str
    seed: int  # of meta-training
    episodes: int
    queries: int  # a task
    steps: int  # of meta-training
    train_seconds: float
    eval_seconds: float
    state_bytes: int  # of one stream, after all of it
    peak_memory_bytes: int
    hardware: str
    train_hardware: str
    commit: str | None
    date: str
    budget: str | None = None  # what meta-training was allowed, where it was less than published
    scores: tuple[float, ...] | None = None  # of every episode, for paired comparisons
    curve: tuple[tuple[float, float], ...] | None = None  # of the metrics in CURVES


def mean_and_spread(scores: list[float]) -> dict[str, float | None]:
    """`value`, `std` and `ci95` of a row, from one score an episode."""
    if len(scores) < 2:
        return {"value": fmean(scores), "std": None, "ci95": None}
    spread = stdev(scores)
    return {"value": fmean(scores), "std": spread, "ci95": 1.96 * spread / math.sqrt(len(scores))}


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows in one write, so that evaluations running side by side do not mix their lines."""
    lines = [json.dumps({name: value for name, value in asdict(row).items() if value is not None}) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, "".join(line + "\n" for line in lines).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(paths: Iterable[Path]) -> list[Row]:
    """All rows of some files, and of all `*.jsonl` in some folders, in order."""
    return [row for path in paths for file in _files(path) for row in _rows(file)]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.jsonl"))
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; 'sbmcl evaluate RUN' writes results")
    return [path]


def _rows(path: Path) -> Iterator[Row]:
    known = {field.name for field in fields(Row)}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            plain = json.loads(line)
            row = {"std": None, "ci95": None, "commit": None, **plain}
            yield Row(**{name: _frozen(value) for name, value in row.items() if name in known})
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} of {path} is no result row: {error}") from error


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
