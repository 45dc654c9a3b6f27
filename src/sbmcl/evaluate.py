"""Evaluation: trained networks in, rows of results out. It names no method and no data set.

Episode `i` of a setting is a function of the setting and `i` alone, drawn on the CPU, so every method, run and machine is
asked the same ones. Streams are learned in chunks and episodes a few at a time, so memory does not grow with either.
"""

import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sbmcl.config import DATA, DataConfig
from sbmcl.data.episodes import EpisodeShape, EpisodeSource, rng_for
from sbmcl.episode import Episode, Examples, stack_episodes
from sbmcl.experiment import Experiment
from sbmcl.heads.classes import auroc
from sbmcl.methods.base import Method
from sbmcl.results import Row, mean_and_spread
from sbmcl.runs import RunFolder, Which, commit, hardware
from sbmcl.state import state_bytes
from sbmcl.train import use_bf16

TASKS = (10, 20, 50, 100, 200, 500)
SHOTS = (10, 20, 50, 100, 200)
CHUNK = 1_000  # examples of a stream learned at once
LONGEST = 10_000  # examples in a stream
ROOM = {"cpu": (5_000, 2 << 30), "cuda": (50_000, 16 << 30)}
"""For episodes side by side: examples learned or asked at once, bytes of states."""
Asked = Literal["validation", "test"]


@dataclass(frozen=True)
class Trained:
    """A method ready to be asked, and what its rows say of where it comes from."""

    experiment: Experiment[Any, Any]
    method: Method[Any]
    step: int
    train_seconds: float
    train_hardware: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def load(path: Path, device: torch.device, which: Which | None = None) -> Trained:
    """The networks of a run folder, in the state that evaluation wants them in."""
    folder = RunFolder.open(path)
    experiment = folder.experiment()
    source = experiment.data.source("train")
    assert source is not None, "only a validation split may be switched off"
    method = experiment.method.build(source).to(device)
    step = folder.load_weights(method, which)
    method.bf16 = use_bf16(experiment.training.precision, method, device)
    seconds = max((entry["seconds"] for entry in folder.read_log() if "seconds" in entry), default=0.0)
    return Trained(experiment, method.eval(), step, seconds, folder.environment()["hardware"], device)


def settings(tasks: tuple[int, ...], shots: tuple[int, ...]) -> list[tuple[int, int]]:
    """More tasks at 10 shots and more shots at 10 tasks, the two axes of the paper; the corner they share once."""
    along = [(k, 10) for k in tasks] + [(10, s) for s in shots]
    return [pair for pair in dict.fromkeys(along) if pair[0] * pair[1] <= LONGEST]


def queries_for(tasks: int, cap: int) -> int:
    """Queries a task: a thousand an episode where the data has so many, and at most `cap` of each task."""
    return min(max(1_000 // tasks, 1), cap)


def evaluate(
    trained: Trained,
    pairs: list[tuple[int, int]],
    *,
    episodes: int | None = None,
    at_mode: bool = False,
    on: str | None = None,
    split: Asked = "test",
) -> Iterator[list[Row]]:
    """The rows of one setting after another; a setting the data cannot fill is refused before any work starts."""
    count = episodes or trained.experiment.method.default_episodes
    for each in questions(trained, pairs, on=on, split=split):
        measure, tally = Measure(trained, each), Tally()
        for episode, rng in each.draw(count, measure.state_bytes, trained.device):
            tally.ask(trained.method, episode, rng, at_mode)
        yield tally.rows(measure.row(count, at_mode=at_mode), trained.method)


@dataclass(frozen=True)
class Question:
    """A setting: where episodes come from and what shape they have."""

    data: str
    source: EpisodeSource
    split: Asked
    shape: EpisodeShape

    def episode(self, number: int) -> Episode:
        return self.source.draw(self.shape, 1, rng_for(0, f"episode of {self}", number))

    def draw(self, episodes: int, bytes_of_one: int, device: torch.device) -> Iterator[tuple[Episode, torch.Generator]]:
        """Episodes side by side, as many at a time as examples in flight and states of this size leave room for.

        With them comes a generator for the method.
        """
        at_once = max(self.shape.tasks * self.shape.queries, min(self.shape.stream_length, CHUNK))
        examples, memory = ROOM.get(device.type, ROOM["cpu"])
        batch = max(1, min(examples // at_once, memory // max(1, bytes_of_one)))
        for first in range(0, episodes, batch):
            parts = [self.episode(number) for number in range(first, min(first + batch, episodes))]
            yield stack_episodes(parts).to(device), rng_for(0, f"method in {self}", first, device)

    def __str__(self) -> str:
        """What seeds are made of. A source that draws every split alike must not show its test episodes for validation."""
        shape = f"{self.shape.tasks} tasks, {self.shape.shots} shots, {self.shape.queries} queries"
        return shape if self.split == "test" else f"{shape}, {self.split}"


def questions(
    trained: Trained, pairs: list[tuple[int, int]], *, on: str | None = None, split: Asked = "test"
) -> list[Question]:
    """So many tasks and shots of a split; what cannot be drawn or does not fit the networks is refused."""
    data = trained.experiment.data if on is None else other_data(trained.experiment.data, on)
    source = data.source(split)
    if source is None:
        raise ValueError("the run kept no validation classes (data.validation is 0); evaluate on the test split")
    shapes = [EpisodeShape(k, s, queries_for(k, source.query_cap)) for k, s in pairs]
    for shape in shapes:
        source.check(shape)
    return [Question(data.name, source, split, shape) for shape in shapes]


def other_data(data: DataConfig, name: str) -> DataConfig:
    """Another data set asked the same way, for meta-testing out of distribution."""
    if name not in DATA:
        raise ValueError(f"no data set is called {name!r}; known are {', '.join(sorted(DATA))}")
    task = getattr(data, "task", None)
    if (task is None) == hasattr(DATA[name], "task"):
        raise ValueError(f"{name} cannot be asked the way {data.name} is: one has pictures, the other has not")
    other = DATA[name]() if task is None else DATA[name](task=task)  # pyright: ignore[reportCallIssue]
    mine, theirs = data.source("test"), other.source("test")
    assert mine is not None, "only a validation split may be switched off"
    assert theirs is not None, "only a validation split may be switched off"
    if (mine.kind, mine.x_shape, mine.y_shape) != (theirs.kind, theirs.x_shape, theirs.y_shape):
        raise ValueError(
            f"the networks were made for {data.name}, where x is {mine.x_shape} and y {mine.y_shape}; in {name} x is "
            f"{theirs.x_shape} and y {theirs.y_shape}, which they cannot take"
        )
    return other


class Measure:
    """What asking a question costs, from now on, and the row that says so."""

    def __init__(self, trained: Trained, question: Question):
        self.trained, self.question = trained, question
        self.began = time.perf_counter()
        _reset_peak(trained.device)
        self.state_bytes = state_bytes(self._learned())

    @torch.no_grad()
    def _learned(self) -> Any:
        """One stream alone."""
        method, episode = self.trained.method, self.question.episode(0).to(self.trained.device)
        rng = rng_for(0, f"method in {self.question}", 0, self.trained.device)
        return learn_in_chunks(method, method.init(1, rng=rng), episode.stream)

    def row(self, episodes: int, *, at_mode: bool = False) -> Row:
        """All but the metric and its value."""
        trained, experiment, shape = self.trained, self.trained.experiment, self.question.shape
        return Row(
            benchmark=experiment.benchmark,
            method=experiment.label + ("-map" if at_mode else ""),
            meta_train=experiment.data.name,
            meta_test=self.question.data,
            tasks=shape.tasks,
            shots=shape.shots,
            metric="",
            value=0.0,
            std=None,
            ci95=None,
            recipe=experiment.recipe,
            seed=experiment.seed,
            episodes=episodes,
            queries=shape.queries,
            steps=trained.step,
            train_seconds=round(trained.train_seconds, 1),
            eval_seconds=round(time.perf_counter() - self.began, 2),
            state_bytes=self.state_bytes,
            peak_memory_bytes=_peak(trained.device),
            hardware=hardware(trained.device),
            train_hardware=trained.train_hardware,
            commit=commit(),
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            budget=experiment.budget,
        )


class Tally:
    """Scores of many episodes, kept apart by episode until the end."""

    def __init__(self) -> None:
        self.scores: dict[str, list[Tensor]] = {}
        self.novelty: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()  # not inference_mode: a method may learn by gradient descent of its own
    def ask(self, method: Method[Any], episode: Episode, rng: torch.Generator, at_mode: bool) -> None:
        state = learn_in_chunks(method, method.init(episode.size, rng=rng), episode.stream)
        for name, score in method.score(state, episode.query, rng=rng, at_mode=at_mode).items():
            self.scores.setdefault(name, []).append(score.cpu())
        if type(method).novelty is not Method.novelty:
            self._ask_novelty(method, episode)

    def rows(self, stem: Row, method: Method[Any]) -> list[Row]:
        scores = {name: torch.cat(parts) for name, parts in self.scores.items()}
        rows = []
        for name, score in scores.items():
            if name in method.head.pooled_only:
                continue
            by_episode = score.double().mean(dim=1).tolist()
            kept = tuple(round(value, 6) for value in by_episode) if name == method.head.metric else None
            rows.append(replace(stem, metric=name, scores=kept, **mean_and_spread(by_episode)))  # pyright: ignore
        pooled = method.head.pooled(scores)
        if self.novelty:
            known, novel = (torch.cat(parts) for parts in zip(*self.novelty, strict=True))
            pooled["novelty_auroc"] = auroc(known, novel)
        return rows + [replace(stem, metric=name, value=value) for name, value in pooled.items()]

    def _ask_novelty(self, method: Method[Any], episode: Episode) -> None:
        """Can queries of tasks never learned be told? The same queries, asked after the first half of the tasks."""
        last = int(episode.stream.task.max()) // 2  # of the tasks learned
        seen = episode.stream.task[0] <= last
        if bool(seen.all()):
            return
        state = learn_in_chunks(method, method.init(episode.size), episode.stream[: int(seen.sum())])
        novelty = method.novelty(state, episode.query.x)
        assert novelty is not None
        known = episode.query.task[0] <= last
        self.novelty.append((novelty[:, known].flatten().cpu(), novelty[:, ~known].flatten().cpu()))


def learn_in_chunks(method: Method[Any], state: Any, stream: Examples) -> Any:
    for first in range(0, len(stream), CHUNK):
        state = method.learn(state, stream[first : first + CHUNK])
    return state


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # without it, the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def _peak(device: torch.device) -> int:
    """Bytes: of the process on a CPU, of the tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
