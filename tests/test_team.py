"""Two processes train as one, on the CPU: the same weights, one log, and a way back when one of them is lost."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from sbmcl import train as outer
from sbmcl.config import ALPaCA, GeMCL, Glyphs, Sine, Training
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.experiment import Experiment
from sbmcl.methods import conjugate
from sbmcl.nets.mlp import MLP
from sbmcl.runs import RunFolder
from sbmcl.team import Deserted, Team, joined
from sbmcl.train import train

CPU = torch.device("cpu")
TRAINING = Training(
    steps=4,
    episodes=4,
    shape=EpisodeShape(3, 2, 2),
    lr=1e-2,
    precision="fp32",
    checkpoint_every=2,
    log_every=1,
    clip=1.0,
)
SINE = Experiment("tiny", "sine/regression", "sbmcl", Sine(), ALPaCA(width=8, hidden=8), replace(TRAINING, ema=0.5))
GLYPHS = Experiment(
    "tiny-glyphs", "glyphs/classification", "sbmcl", Glyphs(), GeMCL(width=16), replace(TRAINING, lr=1e-4)
)


def in_two(work: Callable[..., None], *arguments: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_member, (work, port, arguments), nprocs=2)


def _member(rank: int, work: Callable[..., None], port: int, arguments: tuple[Any, ...]) -> None:
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    torch.set_num_threads(1)
    with joined(CPU) as team:
        work(team, *arguments)


def train_together(team: Team, *folders: Path) -> None:
    for folder in folders:
        run = RunFolder.open(folder)
        train(run.experiment(), run, CPU, show=False)


def pool(team: Team, folder: Path) -> None:
    """Each process learns its half of a stream; together they know what one learner of the whole does."""
    torch.manual_seed(0)
    alpaca = conjugate.ALPaCA(MLP(50, 8, hidden=8), 8, 50).double().eval()
    gemcl = conjugate.GeMCL(MLP(50, 8, hidden=8), 8).double().eval()
    episode = Sine().source("test").draw(EpisodeShape(4, 3, 2), 1, rng_for(0, "test", 0))
    x, y, task = episode.stream.x.double(), episode.stream.targets.double(), episode.stream.task
    for method, targets in ((alpaca, y), (gemcl, task)):
        stream = replace(episode.stream, x=x, y=targets)
        half = stream[:6] if team.leads else stream[6:]  # the second process meets classes that the first never does
        with torch.no_grad():
            prior: Any = method.init(1)
            together = team.pooled(method.learn(prior, half), prior=prior)
            alone = method.learn(prior, stream)
        for mine, whole in zip(vars(together).values(), vars(alone).values(), strict=True):
            torch.testing.assert_close(mine, whole, rtol=1e-9, atol=1e-12)
    (folder / f"pooled-{team.rank}").touch()


def lose_one(team: Team, folder: Path) -> None:
    original = outer.one_step

    def step(learner: Any, *others: Any) -> Any:
        if not team.leads and learner.step == 3:
            os._exit(0)
        return original(learner, *others)

    outer.one_step = step
    with pytest.raises(Deserted, match=r"lost in step 4 .* checkpoint of step 2 is kept"):
        train_together(team, folder)
    (folder / "told").touch()


def begin(folder: Path, experiment: Experiment[Any, Any]) -> RunFolder:
    return RunFolder.create(folder, experiment, CPU)


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    experiments = {"sine": SINE, "glyphs": GLYPHS}
    for name, experiment in experiments.items():
        begin(tmp_path / "one" / name, experiment)
        begin(tmp_path / "two" / name, experiment)
    train_together(Team(), *(tmp_path / "one" / name for name in experiments))
    in_two(train_together, *(tmp_path / "two" / name for name in experiments))
    for name in experiments:
        one, two = (RunFolder.open(tmp_path / which / name) for which in ("one", "two"))
        mine, theirs = one.load_checkpoint(), two.load_checkpoint()
        assert mine is not None
        assert theirs is not None
        assert mine["step"] == theirs["step"] == 4
        logs = [[(entry["step"], entry["loss"]) for entry in run.read_log() if "loss" in entry] for run in (one, two)]
        assert [step for step, _ in logs[1]] == [1, 2, 3, 4]
        assert [loss for _, loss in logs[1]] == pytest.approx([loss for _, loss in logs[0]], rel=1e-3), name
        if name == "sine":  # Adam makes whole steps of rounding, where there is hardly a gradient, as in convolutions
            for weight in (weight for weight in mine["method"] if weight.endswith("weight")):
                torch.testing.assert_close(theirs["method"][weight], mine["method"][weight], rtol=1e-3, atol=1e-4)


def test_what_processes_learned_apart_is_pooled(tmp_path: Path) -> None:
    in_two(pool, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"pooled-0", "pooled-1"}


def test_a_lost_process_ends_the_run_which_goes_on_with_those_left(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", SINE)
    in_two(lose_one, run.path)
    assert (run.path / "told").exists()
    train_together(Team(), run.path)
    assert run.checkpoint_step() == 4


def test_episodes_that_cannot_be_shared_are_refused() -> None:
    Team(0, 3).check(6)
    with pytest.raises(ValueError, match="a multiple of 3"):
        Team(0, 3).check(4)


@pytest.mark.slow
def test_torchrun_starts_a_team(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "sbmcl"]
    options = (
        "--training.steps 2 --training.episodes 2 --training.validation-episodes 1 --method.hidden 8 --method.width 8"
    )
    done = subprocess.run(
        [*torchrun, "train", "sine-alpaca-quick", *options.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Evaluate it: sbmcl evaluate runs/sine-alpaca-quick-0") == 1
    run = tmp_path / "runs/sine-alpaca-quick-0"
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()] == [2, 2]
