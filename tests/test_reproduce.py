"""The plan by hand, and a reproduction that dies again and again and still asks every cell exactly once."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

from sbmcl import results
from sbmcl.config import ALPaCA, Sine, Training
from sbmcl.data.episodes import EpisodeShape
from sbmcl.experiment import Experiment
from sbmcl.reproduce import Budget, Job, Workplace, expect, plan, reproduce, rows_in
from sbmcl.results import TRAINING, Row

STEPS = 6


@dataclass(frozen=True)
class TinyALPaCA(ALPaCA):
    default_episodes: ClassVar[int] = 2
    width: int = 4
    hidden: int = 4


@dataclass(frozen=True)
class TinyScratch(TinyALPaCA):
    meta_trained: ClassVar[bool] = False


def tiny(method: ALPaCA, recipe: str, label: str) -> Experiment[Any, Any]:
    shape = EpisodeShape(2, 2, 2)
    training = Training(steps=STEPS, episodes=2, shape=shape, log_every=1, checkpoint_every=2, validation_episodes=1)
    return Experiment(recipe, "sine/regression", label, Sine(), method, training)


RECIPES = {
    "sine-alpaca": lambda: tiny(TinyALPaCA(), "sine-alpaca", "sbmcl"),
    "sine-offline": lambda: tiny(TinyScratch(), "sine-offline", "offline"),
}
TARGETS = ["app:sine_shots"]
SHOTS = (10, 20, 50, 100, 200)


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@pytest.fixture(scope="module", autouse=True)
def without_tensorboard() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
        yield


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "runs", tmp_path / "results", show=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Reproduced once without any death."""
    folder = tmp_path_factory.mktemp("finished")
    place = Workplace(folder / "runs", folder / "results", show=False)
    go(place)
    return place


def go(place: Workplace, **options: Any) -> None:
    assert not reproduce(plan(TARGETS, RECIPES, rows_in(place.results), seeds=2, **options), place)


def asked(place: Workplace) -> Counter[tuple[object, ...]]:
    rows = [row for row in rows_in(place.results) if row.metric in ("mse", TRAINING)]
    return Counter((row.recipe, row.seed, row.metric, row.tasks, row.shots) for row in rows)


WHOLE = Counter(
    [("sine-alpaca", seed, "mse", 10, shots) for seed in (0, 1) for shots in SHOTS]
    + [("sine-alpaca", seed, TRAINING, 10, 10) for seed in (0, 1)]
    + [("sine-offline", 0, "mse", 10, shots) for shots in SHOTS]
)


def test_a_plan_names_every_cell_that_has_no_row() -> None:
    made = plan(TARGETS, RECIPES, [], seeds=2)
    assert [(job.name, len(job.asks)) for job in made.jobs] == [
        ("sine-offline-0", 5),
        ("sine-alpaca-0", 6),
        ("sine-alpaca-1", 6),
    ]
    assert made.answered == 0
    assert made.without_recipe == ["sine-online", "sine-oml", "sine-oml-reptile", "sine-tf", "sine-linear-tf"]


def test_all_is_the_whole_paper_and_its_figures() -> None:
    made = plan(["all"], RECIPES, [])
    (job,) = [job for job in made.jobs if job.experiment.recipe == "sine-alpaca"]
    assert Counter(ask.kind for ask in job.asks) == {"score": 10, "forgetting": 1, "cost": 1, "training": 1}
    assert "casia-ddpm-sbmcl" in made.without_recipe


def test_tasks_beyond_and_other_data_are_asked_as_the_paper_asks_them() -> None:
    recipes = {
        "casia-gemcl": lambda: replace(tiny(TinyALPaCA(), "casia-gemcl", "sbmcl"), benchmark="casia/classification")
    }
    (job,) = plan(["tab:ood", "app:casia_clf_tasks"], recipes, []).jobs
    assert [ask.on for ask in job.asks][:2] == ["omniglot", None]
    assert {(ask.method, ask.tasks) for ask in job.asks} >= {("sbmcl", 500), ("sbmcl-map", 500)}


def test_what_nobody_knows_is_named() -> None:
    with pytest.raises(ValueError, match=r"nothing in the paper is called 'tab:nine'; known are .*tab:clf"):
        plan(["tab:nine"], RECIPES, [])


def test_killed_again_and_again_each_cell_is_asked_once(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Death right after a write of rows or of a run folder, each time some writes later."""
    append, put = os.write, Path.replace
    deaths = 0
    for lives in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        done = 0

        def write(*arguments: Any, lives: int = lives) -> Any:
            nonlocal done
            done += 1
            written = append(*arguments)
            if done == lives:
                raise Killed
            return written

        def replaced(part: Path, target: Path, lives: int = lives) -> Any:
            nonlocal done
            done += 1
            moved = put(part, target)
            if done == lives:
                raise Killed
            return moved

        monkeypatch.setattr(results.os, "write", write)
        monkeypatch.setattr(Path, "replace", replaced)
        try:
            go(place)
        except Killed:
            deaths += 1
            continue
        break
    assert deaths >= 5
    assert asked(place) == WHOLE


def test_a_death_while_training_does_not_change_what_is_learned(
    finished: Workplace, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, done = train_module().one_step, 0

    def dying(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done in (4, 9):
            raise Killed
        return step(*arguments)

    monkeypatch.setattr(train_module(), "one_step", dying)
    for _ in range(2):
        with pytest.raises(Killed):
            go(place)
    go(place)
    assert done > 2 * STEPS
    for seed in (0, 1):
        ours, theirs = (load_file(p.runs / f"sine-alpaca-{seed}" / "last.safetensors") for p in (place, finished))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert asked(place) == asked(finished) == WHOLE


def train_module() -> Any:
    import importlib

    return importlib.import_module("sbmcl.train")


def test_what_has_its_row_is_not_done_again(finished: Workplace) -> None:
    made = plan(TARGETS, RECIPES, rows_in(finished.results), seeds=2)
    assert made.jobs == []
    assert made.answered == sum(WHOLE.values())
    fewer = [row for row in rows_in(finished.results) if (row.shots, row.seed) != (50, 1)]
    (job,) = plan(TARGETS, RECIPES, fewer, seeds=2).jobs
    assert (job.name, [ask.shots for ask in job.asks]) == ("sine-alpaca-1", [50])


def test_a_row_of_an_unfinished_run_answers_nothing(finished: Workplace) -> None:
    early = [replace(row, steps=STEPS - 1) for row in rows_in(finished.results) if row.recipe == "sine-alpaca"]
    assert len(plan(TARGETS, RECIPES, early).jobs[-1].asks) == 6


def test_a_budget_is_kept_and_has_rows_of_its_own(
    finished: Workplace, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []

    def steps_within(experiment: Experiment[Any, Any], seconds: float, device: torch.device) -> int:
        fitted.append(seconds)
        return 3

    monkeypatch.setattr("sbmcl.reproduce.steps_within", steps_within)
    budget = Budget("1m", 60.0)
    made = plan(TARGETS, RECIPES, rows_in(finished.results), budget=budget)
    assert [job.name for job in made.jobs] == ["sine-alpaca-0-1m"], (
        "learning from scratch has no budget, and has its rows"
    )
    assert not reproduce(made, place)
    assert fitted == [60.0]
    rows = rows_in(place.results)
    assert {(row.recipe, row.seed, row.budget, row.steps) for row in rows} == {("sine-alpaca", 0, "1m", 3)}
    assert not plan(TARGETS, RECIPES, rows_in(finished.results) + rows, budget=budget).jobs


def test_one_that_fails_does_not_keep_the_others(place: Workplace) -> None:
    broken = {**RECIPES, "sine-offline": lambda: replace(RECIPES["sine-offline"](), data=Missing())}
    (failed,) = reproduce(plan(TARGETS, broken, []), place)
    assert failed.job.experiment.recipe == "sine-offline"
    assert "get it there" in failed.why
    assert {row.recipe for row in rows_in(place.results)} == {"sine-alpaca"}


@dataclass(frozen=True)
class Missing(Sine):
    def source(self, split: str, device: torch.device | str = "cpu") -> Any:
        raise FileNotFoundError("no such data; get it there")


def test_a_folder_of_another_run_is_refused(finished: Workplace) -> None:
    other = {"sine-alpaca": lambda: tiny(TinyALPaCA(noise=0.5), "sine-alpaca", "sbmcl")}
    (failed,) = reproduce(plan(TARGETS, other, []), finished)
    assert "holds a run with other settings" in failed.why


def test_two_do_not_work_in_the_same_runs(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(job: Job, place: Workplace) -> None:
        reproduce(plan(TARGETS, RECIPES, []), place)

    monkeypatch.setattr("sbmcl.reproduce.work", nested)
    with pytest.raises(ValueError, match="another 'sbmcl reproduce' is at work"):
        reproduce(plan(TARGETS, RECIPES, []), place)


def test_expected_time_is_that_of_earlier_rows_of_this_hardware(finished: Workplace) -> None:
    rows = [replace(row, train_seconds=30.0, eval_seconds=5.0) for row in rows_in(finished.results)]
    (job,) = (job for job in plan(TARGETS, RECIPES, [], seeds=3).jobs if job.name == "sine-alpaca-2")
    expected = expect(job, rows, finished.runs, torch.device("cpu"))
    assert expected.training == pytest.approx(30.0)
    each = [5 / (2 * 10 * (row.shots + row.queries)) for row in rows if scored(row)]
    assert expected.asking == pytest.approx(sum(each) / len(each) * 2 * 10 * sum(shots + 50 for shots in SHOTS))


def scored(row: Row) -> bool:
    return row.recipe == "sine-alpaca" and row.scores is not None


def test_expected_time_without_rows_is_measured(place: Workplace) -> None:
    (job, *_) = (job for job in plan(TARGETS, RECIPES, []).jobs if job.experiment.method.meta_trained)
    expected = expect(job, [], place.runs, torch.device("cpu"))
    assert expected.training is not None
    assert 0 < expected.training < 5
    missing = replace(job, experiment=replace(job.experiment, data=Missing()))
    assert expect(missing, [], place.runs, torch.device("cpu")).why == "no such data; get it there"
