"""The paper again: which of its cells have no row yet, and the training and evaluation that give them one.

It names no method: a cell names a recipe, and recipes come from the caller. Nothing is remembered but run folders and rows of
results, so whatever stops it, the next call finds what is left: runs go on from their checkpoints, and a cell that has its row
is not asked again.
"""

import fcntl
import math
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sbmcl.cost import cost
from sbmcl.evaluate import Measure, Trained, evaluate, load, queries_for, questions
from sbmcl.experiment import Experiment
from sbmcl.forgetting import forgetting
from sbmcl.report.cells import MAIN_METRIC, Published, published_recipe, read_paper
from sbmcl.results import FINAL, STATE_BYTES, TRAINING, Row, append, read
from sbmcl.runs import RunFolder, hardware
from sbmcl.train import Diverged, new_learner, one_step, steps_within, train

Recipes = Mapping[str, Callable[[], Experiment[Any, Any]]]
Kind = Literal["score", "forgetting", "cost", "training"]
FIGURES: dict[str, tuple[str, ...]] = {"fig:longer:task": ("_tasks",), "fig:longer:shot": ("_shots",)}
FIGURES["fig:longer"] = FIGURES["fig:longer:task"] + FIGURES["fig:longer:shot"]
SIDE: dict[str, Kind] = {"fig:forgetting": "forgetting", "fig:cost": "cost"}
CURVE_POINTS = 200


@dataclass(frozen=True)
class Budget:
    """What a run may take, where that is less than published."""

    text: str
    seconds: float


@dataclass(frozen=True)
class Ask:
    """One thing that is asked of a trained run, and leaves a row that says it was."""

    kind: Kind
    method: str  # as in rows; `-map` puts the mode in place of the belief
    tasks: int = 10
    shots: int = 10
    on: str | None = None  # another data set than that of meta-training

    def answered(self, row: Row, task: str) -> bool:
        if self.kind != "score":
            return row.metric == {"forgetting": FINAL, "cost": STATE_BYTES, "training": TRAINING}[self.kind]
        asked = (self.method, self.tasks, self.shots, self.on or row.meta_train, MAIN_METRIC[task])
        return asked == (row.method, row.tasks, row.shots, row.meta_test, row.metric)


@dataclass(frozen=True)
class Job:
    """One recipe with one seed: trained once, asked everything that has no row yet."""

    experiment: Experiment[Any, Any]
    budget: Budget | None
    asks: tuple[Ask, ...]

    @property
    def name(self) -> str:
        """Of its run folder."""
        parts = (self.experiment.recipe, str(self.experiment.seed), self.budget.text if self.budget else "")
        return "-".join(filter(None, parts))


@dataclass(frozen=True)
class Plan:
    jobs: list[Job]
    answered: int
    """Cells that have their row."""
    without_recipe: list[str]
    """Recipes that cells ask for and that are not there."""


def plan(
    targets: Sequence[str], recipes: Recipes, rows: Iterable[Row], *, budget: Budget | None = None, seeds: int = 1
) -> Plan:
    """What is missing of some tables, figures, benchmarks or data sets, or of `all`."""
    if seeds < 1:
        raise ValueError(f"seeds counts from 1, but got {seeds}")
    wanted: dict[str, dict[Ask, None]] = defaultdict(dict)
    for recipe, ask in asks_of(targets):
        wanted[recipe][ask] = None
    by_recipe: dict[tuple[str, int, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        by_recipe[row.recipe, row.seed, row.budget].append(row)
    jobs, answered = [], 0
    for recipe in (recipe for recipe in wanted if recipe in recipes):
        experiment = recipes[recipe]()
        learns = experiment.method.meta_trained
        asks = wanted[recipe] | ({Ask("training", experiment.label): None} if learns else {})
        for seed in range(seeds if learns else 1):  # learning from scratch has no seeds of meta-training
            job = Job(replace(experiment, seed=seed), budget if learns else None, tuple(asks))
            known = by_recipe[recipe, seed, job.budget.text if job.budget else None]
            missing = tuple(ask for ask in asks if not any(_answers(row, ask, job) for row in known))
            answered += len(asks) - len(missing)
            if missing:
                jobs.append(replace(job, asks=missing))
    return Plan(jobs, answered, [recipe for recipe in wanted if recipe not in recipes])


def _answers(row: Row, ask: Ask, job: Job) -> bool:
    """Of a run without a budget only the end counts."""
    training = job.experiment.training
    ended = job.budget is not None or not job.experiment.method.meta_trained or row.steps >= training.steps
    return ended and ask.answered(row, job.experiment.benchmark.split("/")[-1])


def asks_of(targets: Sequence[str]) -> Iterator[tuple[str, Ask]]:
    """Recipe and question of every cell that the targets name, in the paper's order."""
    paper = read_paper()
    for target in targets:
        chosen = [cell for cell in paper if target in _names(cell)]
        side: list[Kind] = [kind for name, kind in SIDE.items() if target in ("all", name)]
        if not chosen and not side:
            known = sorted({name for cell in paper for name in _names(cell)} | set(SIDE))
            raise ValueError(f"nothing in the paper is called {target!r}; known are {', '.join(known)}")
        for cell in chosen:
            question = cell.question
            on = question.meta_test if question.meta_test not in (None, question.meta_train) else None
            ask = Ask("score", cell.method, question.tasks, question.shots, on)
            yield published_recipe(question.benchmark, cell.method), ask
        for kind in side:
            for cell in paper:
                if not cell.method.endswith("-map"):
                    yield published_recipe(cell.question.benchmark, cell.method), Ask(kind, cell.method)


def _names(cell: Published) -> set[str]:
    """All that a cell can be asked for by."""
    figures = {
        name for name, ends in FIGURES.items() if cell.table.startswith("app:casia") and cell.table.endswith(ends)
    }
    return {"all", cell.table, cell.question.benchmark, cell.question.meta_train} | figures


@dataclass(frozen=True)
class Expected:
    """Seconds that a job will take here; None where that cannot be known before it was run once."""

    training: float | None
    asking: float | None
    why: str = ""  # there is no figure


def expect(job: Job, rows: Iterable[Row], runs: Path, device: torch.device) -> Expected:
    """From what earlier rows of this hardware say, else from the pace of a few steps now."""
    experiment, here = job.experiment, hardware(device)
    mine = [row for row in rows if row.recipe == experiment.recipe]
    asked = [
        row.eval_seconds / (row.episodes * row.tasks * (row.shots + row.queries))
        for row in mine
        if row.hardware == here and row.scores
    ]
    if not experiment.method.meta_trained:
        seconds = None if not asked else _examples(job) * sum(asked) / len(asked)
        return Expected(0.0, seconds, "" if asked else "learns every stream from scratch, measured once it has run")
    folder, training = RunFolder(runs / job.name), experiment.training
    done = folder.checkpoint_step()
    paces = [row.train_seconds / row.steps for row in mine if row.train_hardware == here and row.steps]
    try:
        pace = sum(paces) / len(paces) if paces else seconds_of_a_step(experiment, device)
    except (OSError, ValueError) as error:
        return Expected(None, None, str(error))
    if job.budget is None:
        needed = pace * max(0, training.steps - done)
    else:
        spent = max((entry["seconds"] for entry in folder.read_log() if "seconds" in entry), default=0.0)
        needed = max(0.0, job.budget.seconds - spent)
    shape = training.shape
    of_step = training.episodes * shape.tasks * (shape.shots + shape.queries)
    each = sum(asked) / len(asked) if asked else pace / of_step / 2  # no way back through the networks
    return Expected(needed, each * _examples(job))


def seconds_of_a_step(experiment: Experiment[Any, Any], device: torch.device) -> float:
    """The second of two steps of a throw-away learner; the first chooses kernels and fills caches."""
    source = experiment.data.source("train", device)
    assert source is not None, "only a validation split may be switched off"
    learner = new_learner(experiment, source, device)
    began = time.perf_counter()
    for warm in (True, False):
        one_step(learner, experiment, source, device)["loss"].item()  # waits for the device
        began = time.perf_counter() if warm else began
    return time.perf_counter() - began


def _examples(job: Job) -> int:
    """Learned or asked over all evaluations of a job."""
    episodes = job.experiment.method.default_episodes
    scored = [ask for ask in job.asks if ask.kind in ("score", "forgetting")]
    return sum(episodes * ask.tasks * (ask.shots + queries_for(ask.tasks, 50)) for ask in scored)


@dataclass(frozen=True)
class Workplace:
    """Where jobs leave what they make, and what they may use."""

    runs: Path = Path("runs")
    results: Path = Path("results")
    device: str = "cpu"
    threads: int | None = None
    show: bool = True


@dataclass(frozen=True)
class Failed:
    job: Job
    why: str


def reproduce(plan: Plan, place: Workplace, *, jobs: int = 1) -> list[Failed]:
    """Do all of a plan, so many jobs side by side; what fails does not keep the others."""
    if jobs < 1:
        raise ValueError(f"jobs counts from 1, but got {jobs}")
    with alone(place.runs):
        if jobs == 1:
            outcomes = [work(job, place) for job in plan.jobs]
        else:
            share = replace(place, threads=max(1, (place.threads or os.cpu_count() or 1) // jobs), show=False)
            with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
                outcomes = list(pool.map(work, plan.jobs, [share] * len(plan.jobs)))
    return [failed for failed in outcomes if failed is not None]


def work(job: Job, place: Workplace) -> Failed | None:
    """Train from wherever it was, then ask what is missing, a row at a time."""
    if place.threads is not None:
        torch.set_num_threads(place.threads)
    device = torch.device(place.device)
    try:
        folder = opened(job, place.runs / job.name, device)
        experiment = folder.experiment()
        train(experiment, folder, device, show=place.show)
        trained = load(folder.path, device, "last" if job.budget is None else None)  # the paper judges the last weights
    except (OSError, ValueError, Diverged) as error:
        return Failed(job, str(error))
    failures = []
    for ask in job.asks:
        try:
            append(place.results / f"{experiment.recipe}.jsonl", answer(trained, folder, ask))
        except (OSError, ValueError) as error:
            failures.append(f"{ask.kind}, {ask.tasks} tasks, {ask.shots} shots: {error}")
    return Failed(job, "; ".join(failures)) if failures else None


def opened(job: Job, path: Path, device: torch.device) -> RunFolder:
    """The run folder of a job, made if it is not there; one that holds something else is refused."""
    wanted = replace(job.experiment, budget=job.budget.text if job.budget else None)
    if not (path / "config.json").exists():
        if not wanted.method.meta_trained:
            wanted = replace(wanted, training=replace(wanted.training, steps=0))
        elif job.budget is not None:
            steps = steps_within(wanted, job.budget.seconds, device)
            wanted = replace(wanted, training=replace(wanted.training, steps=steps))
        return RunFolder.create(path, wanted, device)
    folder = RunFolder.open(path)
    found = folder.experiment()
    free = job.budget is not None or not wanted.method.meta_trained  # steps were fitted when the folder was made
    steps = found.training.steps if free else wanted.training.steps
    if found != replace(wanted, training=replace(wanted.training, steps=steps)):
        raise ValueError(f"{path} holds a run with other settings than its recipe; move it away, or name other --runs")
    return folder


def answer(trained: Trained, folder: RunFolder, ask: Ask) -> list[Row]:
    if ask.kind == "forgetting":
        return forgetting(trained, (ask.tasks, ask.shots))
    if ask.kind == "cost":
        return cost(trained)
    if ask.kind == "training":
        return [learning_curve(trained, folder)]
    at_mode = ask.method.endswith("-map")
    return next(evaluate(trained, [(ask.tasks, ask.shots)], at_mode=at_mode, on=ask.on))


def learning_curve(trained: Trained, folder: RunFolder) -> Row:
    """Minutes of meta-training against the score on validation; on training streams where no validation classes are kept."""
    log, metric = folder.read_log(), trained.method.head.metric
    minutes = {entry["step"]: entry["seconds"] / 60 for entry in log if "seconds" in entry}
    curve = [(minutes[e["step"]], e["validation"]) for e in log if "validation" in e and e["step"] in minutes]
    if not curve:
        curve = [(e["seconds"] / 60, e.get(metric, e["loss"])) for e in log if "loss" in e]
    stride = math.ceil(len(curve) / CURVE_POINTS) or 1
    kept = tuple((round(x, 3), round(y, 6)) for x, y in [*curve[:-1:stride], *curve[-1:]])
    row = Measure(trained, questions(trained, [(10, 10)])[0]).row(1)
    return replace(row, metric=TRAINING, value=kept[-1][1], episodes=trained.experiment.training.episodes, curve=kept)


@contextmanager
def alone(runs: Path) -> Iterator[None]:
    """No other process reproduces into these runs at the same time; a kill lets go."""
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / ".reproduce.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(
                f"another 'sbmcl reproduce' is at work in {runs}; wait for it, or name other --runs"
            ) from error
        yield


def rows_in(results: Path) -> list[Row]:
    return read([results]) if results.exists() else []
