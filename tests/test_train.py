"""The outer loop: whatever stops a run, going on ends in the same weights, and what is kept is never broken."""

import multiprocessing
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sbmcl import train as outer
from sbmcl.config import ALPaCA, Sine, Training
from sbmcl.data.episodes import EpisodeShape
from sbmcl.experiment import Experiment
from sbmcl.runs import RunFolder
from sbmcl.train import Diverged, Interrupted, learning_rate, steps_within, train

CPU = torch.device("cpu")
TRAINING = Training(
    steps=40,
    episodes=2,
    shape=EpisodeShape(3, 3, 3),
    lr=1e-2,
    schedule="cosine",
    ema=0.9,
    log_every=3,
    validate_every=10,
    validation_episodes=2,
    checkpoint_every=5,
)


def experiment(**changes: Any) -> Experiment[Sine, ALPaCA]:
    training = replace(TRAINING, **changes)
    return Experiment("tiny", "sine/regression", "sbmcl", Sine(), ALPaCA(width=8, hidden=8), training)


def begin(path: Path, **changes: Any) -> RunFolder:
    return RunFolder.create(path, experiment(**changes), CPU)


def go_on(run: RunFolder) -> None:
    train(run.experiment(), run, CPU, show=False)


def kept(run: RunFolder) -> dict[str, Any]:
    """All that a run leaves to others, but for the times in it; weights to the last bit."""
    log = [{name: value for name, value in entry.items() if name != "seconds"} for entry in run.read_log()]
    return {"log": log, "last": weights(run, "last"), "best": weights(run, "best")}


def weights(run: RunFolder, which: str) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in load_file(run.path / f"{which}.safetensors").items()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = begin(tmp_path_factory.mktemp("runs") / "whole")
    go_on(run)
    return kept(run)


def in_another_process(path: Path) -> None:
    torch.set_num_threads(1)
    original = outer.one_step

    def slower(*arguments: Any) -> Any:
        time.sleep(0.02)
        return original(*arguments)

    outer.one_step = slower
    go_on(RunFolder.open(path))


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_in_the_same_weights(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    run = begin(tmp_path / "run")
    context, dice = multiprocessing.get_context("forkserver"), random.Random(0)
    context.set_forkserver_preload(["sbmcl.train", "torch.utils.tensorboard"])
    for until in (4, 15, 29):
        process = context.Process(target=in_another_process, args=(run.path,))
        process.start()
        while process.is_alive() and max((entry["step"] for entry in run.read_log()), default=0) < until:
            time.sleep(0.01)
        time.sleep(0.1 * dice.random())
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it was over before it was killed"
    go_on(run)
    assert kept(run) == uninterrupted
    assert not list(run.path.glob("*.part"))


def test_a_stop_on_request_leaves_a_checkpoint_to_go_on_from(
    tmp_path: Path, uninterrupted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, original = begin(tmp_path / "run"), outer.one_step

    def and_then_a_signal(learner: outer.Learner, *rest: Any) -> Any:
        losses = original(learner, *rest)
        if learner.step == 17:
            os.kill(os.getpid(), signal.SIGINT)
        return losses

    monkeypatch.setattr(outer, "one_step", and_then_a_signal)
    with pytest.raises(Interrupted, match=r"step 17; go on with: sbmcl train .* --resume"):
        go_on(run)
    assert run.checkpoint_step() == 17
    monkeypatch.undo()
    go_on(run)
    for which in ("last", "best"):
        assert kept(run)[which] == uninterrupted[which]


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", steps=5)
    go_on(run)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    go_on(run)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"NaN or infinity by step .*--training.lr"):
        go_on(begin(tmp_path / "run", lr=1e30, schedule="constant"))


def test_weights_that_are_no_numbers_are_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient may overflow in a step whose loss was fine, just before a checkpoint."""
    run, original = begin(tmp_path / "run"), outer.one_step

    def poisoned(learner: outer.Learner, *rest: Any) -> Any:
        losses = original(learner, *rest)
        if learner.step == 10:
            learner.method.prior_mean.data[0, 0] = torch.nan
        return losses

    monkeypatch.setattr(outer, "one_step", poisoned)
    with pytest.raises(Diverged, match="the checkpoint of step 5 is kept"):
        go_on(run)
    saved = run.load_checkpoint()
    assert saved is not None
    assert all(value.isfinite().all() for value in saved["method"].values())


def test_tensorboard_gets_what_is_logged(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = begin(tmp_path / "run", steps=10)
    go_on(run)
    events = accumulator.EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    logged = [entry["mse"] for entry in run.read_log() if "mse" in entry]
    assert [event.value for event in events.Scalars("mse")] == pytest.approx(logged)
    assert [event.step for event in events.Scalars("validation")] == [10]


def test_tensorboard_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run = begin(tmp_path / "run", steps=5)
    go_on(run)
    assert run.is_finished(5)
    assert not (run.path / "tensorboard").exists()


def test_steps_fill_a_budget() -> None:
    """Twice the time, about twice the steps; a time too short for one step is still one."""
    one, two = (steps_within(experiment(), seconds, CPU, measured_for=0.3) for seconds in (5.0, 10.0))
    assert 1.2 < two / one < 3.5
    assert steps_within(experiment(), 1e-6, CPU, measured_for=0.01) == 1


def test_zero_steps_keep_the_weights_of_the_seed(tmp_path: Path) -> None:
    one, other = begin(tmp_path / "one", steps=0), begin(tmp_path / "other", steps=0)
    go_on(one)
    go_on(other)
    assert weights(one, "last") == weights(other, "last")


@pytest.mark.parametrize(
    ("training", "rates"),
    [
        (Training(lr=1.0, schedule="constant"), {0: 1.0, 49_999: 1.0}),
        (Training(lr=1.0), {0: 1.0, 9_999: 1.0, 10_000: 0.5, 49_999: 0.0625}),
        (Training(lr=1.0, schedule="cosine", warmup=4, steps=104), {0: 0.25, 3: 1.0, 4: 1.0, 54: 0.5, 104: 0.0}),
    ],
)
def test_learning_rates(training: Training, rates: dict[int, float]) -> None:
    assert {step: learning_rate(training, step) for step in rates} == pytest.approx(rates)
