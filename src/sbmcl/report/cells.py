"""Which of our rows answer which cell of the paper, and how the two numbers compare.

It may know result rows and the paper's numbers, nothing of how they are shown. A `Question` is what all methods are asked
alike, an `Entry` is who answers it, a `Measured` is the answer, and a `Standing` says what it is worth beside the paper's.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from importlib.resources import files
from math import hypot
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from sbmcl.report.significance import Scores, interval
from sbmcl.results import Row

PUBLISHED_STEPS = 50_000
VARIANTS = {"quick", "small", "robust"}  # words after the name of a published recipe: less training, size, overfitting
UNTRAINED = ("offline", "online")  # learn every episode from scratch
FAR = 2.0  # units of spread
MAIN_METRIC = {
    "classification": "error",
    "regression": "mse",
    "completion": "mse",
    "rotation": "angle",
    "rotation-offset": "angle",
    "vae": "bpd",
    "ddpm": "noise_mse",
}
FAMILY = {"classification": "gemcl", "regression": "alpaca"}  # what `sbmcl` is called where it has an analytic form


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

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """95 % of the mean over resampled episodes (and seeds); from the row alone where scores were not kept."""
        if self.scores is not None and self.scores.shape[1] > 1:
            return interval(self.scores)
        ci95 = self.rows[0].ci95
        return None if ci95 is None or len(self.rows) > 1 else (self.value - ci95, self.value + ci95)

    @property
    def error(self) -> float:
        """How far off the value may be: the spread over seeds; of a single seed, the standard error over episodes."""
        return self.spread if self.spread is not None else (self.rows[0].ci95 or 0.0) / 1.96

    @property
    def steps(self) -> int:
        return min(row.steps for row in self.rows)

    @property
    def episodes(self) -> int:
        return min(row.episodes for row in self.rows)

    @property
    def minutes(self) -> float:
        """Of meta-training, a seed."""
        return fmean(row.train_seconds for row in self.rows) / 60

    @cached_property
    def scores(self) -> Scores | None:
        """Seeds by the episodes that all of them were asked; None where scores were not kept or queries differ."""
        kept = [row.scores for row in self.rows if row.scores]
        if len(kept) < len(self.rows) or len({row.queries for row in self.rows}) > 1:
            return None
        asked = min(map(len, kept))
        return np.array([scores[:asked] for scores in kept])


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


class Standing(Enum):
    """What a cell of the paper has become here."""

    REPRODUCED = "reproduced"
    BETTER = "better than the paper"
    WORSE = "worse than the paper"
    REDUCED_REACHED = "reduced budget, reaches the paper"
    REDUCED_SHORT = "reduced budget, short of the paper"
    NOT_RUN = "not run"


def standing(cell: Published, entry: Entry | None, ours: Measured | None) -> Standing:
    if entry is None or ours is None:
        return Standing.NOT_RUN
    distance = cell.distance(ours)
    if not trained_as_published(cell.question.benchmark, entry, ours.steps):
        return Standing.REDUCED_REACHED if distance <= FAR else Standing.REDUCED_SHORT
    if abs(distance) <= FAR:
        return Standing.REPRODUCED
    return Standing.BETTER if distance < 0 else Standing.WORSE


def published_recipe(benchmark: str, method: str) -> str:
    """The recipe that a cell of the paper asks for, by the rule that names recipes."""
    data, task = benchmark.split("/")
    method = method.removesuffix("-map")
    if task in FAMILY:
        return f"{data}-{FAMILY[task] if method == 'sbmcl' else method}"
    return f"{data}-{task}-{method}"


def is_cut(benchmark: str, entry: Entry) -> bool | None:
    """Whether an entry's recipe is the published one in another training or size; None if it is another one altogether."""
    published = published_recipe(benchmark, entry.method)
    if entry.recipe == published:
        return False
    words = set(entry.recipe.removeprefix(published + "-").split("-"))
    return True if entry.recipe.startswith(published + "-") and words <= VARIANTS else None


def trained_as_published(benchmark: str, entry: Entry, steps: int) -> bool:
    """The published recipe to the end of its steps; who learns from scratch has no steps to cut."""
    whole = entry.method.removesuffix("-map") in UNTRAINED or steps >= PUBLISHED_STEPS
    return whole and entry.budget in (None, "paper") and is_cut(benchmark, entry) is False


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
Setting = tuple[str, str, str]  # benchmark, method, meta_train


def answers(rows: Iterable[Row]) -> Answers:
    """All rows by question and entry. Of rows that measure the same thing twice, the newest counts."""
    newest: dict[tuple[Question, Entry], dict[int, Row]] = defaultdict(dict)
    for row in sorted(rows, key=_order):
        newest[question_of(row), Entry(row.method, row.recipe, row.budget)][row.seed] = row
    found: Answers = defaultdict(dict)
    for (question, entry), seeds in sorted(newest.items(), key=str):
        found[question][entry] = Measured(tuple(seeds[seed] for seed in sorted(seeds)))
    return dict(found)


def question_of(row: Row) -> Question:
    return Question(**{name: getattr(row, name) for name in Question._fields})


def standing_entries(found: Answers) -> dict[Setting, Entry]:
    """For every benchmark, method and meta-training set, the entry that stands in the paper's tables.

    The published recipe, or one cut down from it. Among several: trained to the end before cut short, published size before
    smaller, then the longest training; never the better score.
    """
    return _first_of(found, lambda question, entry: is_cut(question.benchmark, entry) is not None)


def drawn_entries(found: Answers) -> dict[Setting, Entry]:
    """The entry that stands for a method in figures: as `standing_entries`, else the recipe with the shortest name."""
    return _first_of(found, lambda question, entry: True) | standing_entries(found)


def _first_of(found: Answers, admitted) -> dict[Setting, Entry]:  # pyright: ignore[reportMissingParameterType]
    candidates: dict[Setting, dict[Entry, tuple]] = defaultdict(dict)
    for question, measured in found.items():
        for entry, ours in measured.items():
            if admitted(question, entry):
                whole = trained_as_published(question.benchmark, entry, ours.steps)
                rank = (not whole, "small" in entry.recipe, -ours.minutes, len(entry.recipe), str(entry))
                setting = (question.benchmark, entry.method, question.meta_train)
                candidates[setting][entry] = min(rank, candidates[setting].get(entry, rank))
    return {setting: min(ranks, key=ranks.__getitem__) for setting, ranks in candidates.items()}


def _order(row: Row) -> tuple[str, ...]:
    """By date; the rest only so that the order of the files does not matter."""
    return (row.date, *(str(getattr(row, field.name)) for field in fields(Row)))
