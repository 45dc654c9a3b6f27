"""Which of our rows answer which cell of the paper, and how the two numbers compare.

It may know result rows and the paper's numbers, nothing of how they are shown. A `Question` is what all methods are asked
alike, an `Entry` is who answers it, a `Measured` is the answer.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from math import hypot
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from sbmcl.results import Row

PUBLISHED_STEPS = 50_000
MAIN_METRIC = {
    "classification": "error",
    "regression": "mse",
    "completion": "mse",
    "rotation": "angle",
    "vae": "bpd",
    "ddpm": "noise_mse",
}


class Question(NamedTuple):
    """What several methods are asked alike: the same episodes, judged the same way."""

    benchmark: str
    meta_train: str
    meta_test: str | None
    tasks: int
    shots: int
    metric: str

    @property
    def task(self) -> str:
        return self.benchmark.split("/")[-1]


class Entry(NamedTuple):
    """Who answers: a method, as one recipe trained it within one budget."""

    method: str
    recipe: str
    budget: str | None

    @property
    def full(self) -> bool:
        return self.budget in (None, "paper")


@dataclass(frozen=True)
class Measured:
    """One entry's answer to one question: a row for every seed of meta-training."""

    rows: tuple[Row, ...]

    @property
    def value(self) -> float:
        return fmean(row.value for row in self.rows)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds."""
        return stdev(row.value for row in self.rows) if len(self.rows) > 1 else None

    @property
    def error(self) -> float:
        """How far off the value may be: the spread over seeds; of a single seed, the standard error over episodes."""
        return self.spread if self.spread is not None else (self.rows[0].ci95 or 0.0) / 1.96

    @property
    def steps(self) -> int:
        return min(row.steps for row in self.rows)

    @property
    def minutes(self) -> float:
        return fmean(row.train_seconds for row in self.rows) / 60

    @cached_property
    def scores(self) -> np.ndarray | None:
        """One score an episode, averaged over seeds; None where they were not kept or seeds saw unlike episodes."""
        kept = [row.scores for row in self.rows if row.scores is not None]
        alike = len({(len(scores), row.queries) for scores, row in zip(kept, self.rows, strict=False)}) == 1
        return np.mean(kept, axis=0) if len(kept) == len(self.rows) and alike else None


@dataclass(frozen=True)
class Published:
    """One cell of one table of the paper."""

    table: str
    method: str
    question: Question
    value: float
    std: float | None  # over runs; of offline and online learning the standard error over 20 episodes
    decimals: int  # as printed

    def distance(self, ours: Measured) -> float:
        """From the paper to us in units of spread, below zero where we are better (every metric is a loss).

        The spread joins theirs and ours, and is at least half a unit of the last place they printed.
        """
        spread = max(hypot(self.std or 0.0, ours.error), 0.5 * 10**-self.decimals)
        return (ours.value - self.value) / spread


def read_paper() -> list[Published]:
    """Every number of the paper's tables, in its order."""
    plain = json.loads((files("sbmcl") / "assets" / "paper_results.json").read_text())
    decimals: dict[tuple[str, str], int] = defaultdict(int)
    for cell in plain:
        for number in (cell["value"], cell["std"] or 0):
            column = (cell["table"], cell["benchmark"])
            decimals[column] = max(decimals[column], len(str(number).partition(".")[2]))
    return [
        Published(
            cell["table"],
            cell["method"],
            Question(**{name: cell[name] for name in Question._fields}),
            cell["value"],
            cell["std"],
            decimals[cell["table"], cell["benchmark"]],
        )
        for cell in plain
    ]


Answers = dict[Question, dict[Entry, Measured]]


def answers(rows: Iterable[Row]) -> Answers:
    """All rows by question and entry. Of rows that measure the same thing twice, the newest counts."""
    newest: dict[tuple[Question, Entry], dict[int, Row]] = defaultdict(dict)
    for row in sorted(rows, key=_order):
        newest[question_of(row), Entry(row.method, row.recipe, row.budget)][row.seed] = row
    found: Answers = defaultdict(dict)
    for (question, entry), seeds in newest.items():
        found[question][entry] = Measured(tuple(seeds[seed] for seed in sorted(seeds)))
    return dict(found)


def question_of(row: Row) -> Question:
    return Question(**{name: getattr(row, name) for name in Question._fields})


def standing_entries(found: Answers, published: Collection[str] = ()) -> dict[tuple[str, str, str], Entry]:
    """For every (benchmark, method, meta_train), the entry that stands in the paper's tables.

    Only recipes in `published` may, if any are named. Among several: the full budget before a smaller one, then the recipe
    with the shortest name (variants add words to it), then the longest training.
    """
    candidates: dict[tuple[str, str, str], dict[Entry, int]] = defaultdict(dict)
    for question, measured in found.items():
        for entry, ours in measured.items():
            if not published or entry.recipe in published:
                key = (question.benchmark, entry.method, question.meta_train)
                candidates[key][entry] = max(candidates[key].get(entry, 0), ours.steps)
    return {
        key: min(steps, key=lambda entry: (not entry.full, len(entry.recipe), entry.recipe, -steps[entry], str(entry)))
        for key, steps in candidates.items()
    }


def _order(row: Row) -> tuple[str, ...]:
    """By date; the rest only so that the order of the files does not matter."""
    return (row.date, *(str(getattr(row, field.name)) for field in fields(Row)))
