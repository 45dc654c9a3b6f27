"""A run that dies at any of its writes goes on to the same end, bit for bit, and what lies in its folder is always whole."""

import json
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sbmcl import runs
from sbmcl.config import ALPaCA, Sine, Training
from sbmcl.data.episodes import EpisodeShape
from sbmcl.experiment import Experiment
from sbmcl.runs import RunFolder, write_atomically
from sbmcl.train import train

CPU = torch.device("cpu")
TRAINING = Training(
    steps=5,
    episodes=2,
    shape=EpisodeShape(2, 2, 2),
    lr=1e-2,
    ema=0.8,
    log_every=1,
    validate_every=2,
    validation_episodes=1,
    checkpoint_every=2,
)


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def begin(path: Path) -> RunFolder:
    experiment = Experiment("tiny", "sine/regression", "sbmcl", Sine(), ALPaCA(width=4, hidden=4), TRAINING)
    return RunFolder.create(path, experiment, CPU)


@pytest.fixture(scope="module", autouse=True)
def without_tensorboard() -> Iterator[None]:
    """What it writes is its own affair, and takes time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield


def go_on(run: RunFolder) -> None:
    train(run.experiment(), run, CPU, show=False)


def left(run: RunFolder) -> dict[str, Any]:
    log = [{name: value for name, value in entry.items() if name != "seconds"} for entry in run.read_log()]
    files = {which: load_file(run.path / f"{which}.safetensors") for which in ("last", "best")}
    weights = {which: {name: t.numpy().tobytes() for name, t in file.items()} for which, file in files.items()}
    return {"log": log, "steps": run.checkpoint_step(), **weights}


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, number: int, moment: str) -> Iterator[Callable[[], int]]:
    """Death at one of the files put in place: in the middle of writing it, just before it is in place, or just after."""
    replace, fsync, done = Path.replace, runs.os.fsync, 0

    def replaced(part: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done == number and moment == "before":
            raise Killed
        replace(part, target)
        if done == number and moment == "after":
            raise Killed
        return target

    def synced(descriptor: int) -> None:
        if done + 1 == number and moment == "while" and stat.S_ISREG(runs.os.fstat(descriptor).st_mode):
            runs.os.ftruncate(descriptor, 10)
            raise Killed
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replaced)
        patch.setattr(runs.os, "fsync", synced)
        yield lambda: done


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = begin(tmp_path_factory.mktemp("runs") / "whole")
    go_on(run)
    return left(run)


@pytest.mark.parametrize("moment", ["while", "before", "after"])
def test_death_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any], moment: str
) -> None:
    number = 0
    while True:
        number += 1
        run = begin(tmp_path / str(number))
        with dying(monkeypatch, number, moment) as writes:
            try:
                go_on(run)
            except Killed:
                pass
            else:
                break
        for file in run.path.glob("*.safetensors"):
            run.load_weights(whole_method(), file.stem)  # pyright: ignore[reportArgumentType]
        go_on(run)
        assert left(run) == whole, f"after death at write {number}"
        assert not list(run.path.glob("*.part"))
    assert writes() > 6  # three checkpoints with their weights, and the best ones


def whole_method() -> torch.nn.Module:
    source = Sine().source("train")
    return ALPaCA(width=4, hidden=4).build(source)


def test_death_at_every_write_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]) -> None:
    run = begin(tmp_path / "run")
    deaths = 0
    for number in (1, 3, 2, 4, 3, 2):
        with dying(monkeypatch, number, "after"):
            try:
                go_on(run)
            except Killed:
                deaths += 1
    go_on(run)
    assert deaths > 3
    assert left(run) == whole


def test_a_line_of_the_log_cut_short_is_dropped(tmp_path: Path, whole: dict[str, Any]) -> None:
    run = begin(tmp_path / "run")
    (run.path / "log.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
    assert [entry["step"] for entry in run.read_log()] == [1]
    go_on(run)
    assert left(run) == whole


def test_nothing_of_the_future_stays_in_the_log(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    for step in (1, 2, 3):
        run.log(step=step, loss=0.1)
    run.log(step=2, validation=0.3)
    run.rewind_log(2)
    assert [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()] == [
        {"step": 1, "loss": 0.1},
        {"step": 2, "loss": 0.1},
        {"step": 2, "validation": 0.3},
    ]


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    for moment, content in (("while", b"old"), ("before", b"old"), ("after", b"new")):
        with dying(monkeypatch, 1, moment), pytest.raises(Killed):
            write_atomically(path, b"new")
        assert path.read_bytes() == content
        write_atomically(path, b"old")


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(tmp_path / "run")
    run.save_checkpoint({"step": 3})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run.save_checkpoint({"step": 4})
    assert run.checkpoint_step() == 3
