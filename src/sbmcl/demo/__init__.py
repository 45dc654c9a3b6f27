"""The demonstration behind `make run` and `sbmcl demo`: train, learn one stream, look, and write a page about it.

diary    what is measured on the stream      terminal, page    how it is shown
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

from sbmcl.config import ALPaCA, Sine
from sbmcl.data.episodes import EpisodeShape
from sbmcl.demo import diary, page, terminal
from sbmcl.evaluate import TASKS, Trained, evaluate, load
from sbmcl.experiment import Experiment
from sbmcl.methods.conjugate import ALPaCA as Method
from sbmcl.recipes.sine import sine_alpaca_quick
from sbmcl.report import names
from sbmcl.report.cells import read_paper
from sbmcl.results import TRAINING, Row, append
from sbmcl.runs import RunFolder, write_atomically
from sbmcl.train import train

STEPS = 1_200
STREAM = EpisodeShape(tasks=10, shots=10, queries=10)
EPISODES = 64
WATCHED = 2  # the task whose first query is asked again and again, counted from 0


def experiment(steps: int = STEPS) -> Experiment[Sine, ALPaCA]:
    """The quick sine recipe, cut down to two minutes."""
    quick = sine_alpaca_quick()
    training = replace(quick.training, steps=steps, validate_every=150, validation_episodes=32)
    return replace(quick, recipe="demo", training=training)


def show(folder: Path, *, steps: int = STEPS, tasks: tuple[int, ...] = TASKS, episodes: int = EPISODES) -> Path:
    """The whole demonstration; returns the page. Begun again after a stop, it goes on; trained networks are used again."""
    console = Console(highlight=False)
    heading(console, "1  Meta-training: the only part that changes the networks")
    run = trained_run(folder, experiment(steps), console)
    learner = load(run.path, torch.device("cpu"))
    method, source = cast(Method, learner.method), learner.experiment.data.source("test")
    assert source is not None, "only a validation split may be switched off"

    heading(console, f"2  One stream of {STREAM.tasks} new tasks: the networks are frozen, a belief learns")
    episode = source.draw(STREAM, 1, diary.held_out())
    watched = diary.sharpening(method, episode, task=WATCHED)
    errors = diary.errors_by_task(method, episode)
    promises = diary.promises(method, episode, forgotten=WATCHED)
    terminal.tell_sharpening(console, watched, WATCHED)
    terminal.tell_errors(console, errors)
    terminal.tell_promises(console, promises)

    heading(console, f"3  Streams of up to {tasks[-1]:,} tasks")
    rows = list(scores(learner, tasks, episodes, console))
    append(folder / "results.jsonl", rows)
    paper = published()
    terminal.tell_results(console, rows, paper)

    curve = replace(rows[0], metric=TRAINING, scores=None, curve=learning_curve(run))
    html = page.render(facts(learner, run), watched, errors, promises, rows, paper, curve)
    write_atomically(folder / "report.html", html.encode())
    heading(console, "All of this, with pictures")
    console.print(f"\n  {(folder / 'report.html').resolve().as_uri()}\n", soft_wrap=True)
    console.print("  Next: [cyan]sbmcl recipes[/] lists what can be trained, [cyan]sbmcl --help[/] shows the way.")
    return folder / "report.html"


def heading(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/]", align="left", style="dim")


def trained_run(folder: Path, wanted: Experiment[Sine, ALPaCA], console: Console) -> RunFolder:
    device = torch.device("cpu")
    if (folder / "config.json").exists():
        run = RunFolder.open(folder)
        if run.experiment() != wanted:
            raise ValueError(
                f"{folder} holds another experiment; delete it, or name another folder: sbmcl demo --run FOLDER"
            )
    else:
        run = RunFolder.create(folder, wanted, device)
    training = wanted.training
    console.print(
        f"\n  Every step draws {training.episodes} streams of {training.shape.tasks} sine functions, learns each by Bayesian\n"
        "  regression on the network's outputs, and improves the network by its mistakes.\n"
    )
    if run.checkpoint_step() >= training.steps:
        console.print(f"  Already done, in {folder}; delete that folder to train anew.")
    else:
        console.print(
            f"  {training.steps:,} steps; about two minutes on two idle cores. Ctrl-C stops it, the next time it goes on.\n"
        )
    train(wanted, run, device)
    return run


def scores(learner: Trained, tasks: tuple[int, ...], episodes: int, console: Console) -> Iterator[Row]:
    for count in tasks:
        with console.status(f"  {episodes} streams of {names.plural(count, 'task')}"):
            (rows,) = evaluate(learner, [(count, STREAM.shots)], episodes=episodes)
        yield next(row for row in rows if row.metric == "mse")


def published() -> dict[str, dict[int, float]]:
    """The paper's errors by method and number of tasks."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for cell in read_paper():
        question = cell.question
        if (question.benchmark, question.shots) == ("sine/regression", STREAM.shots):
            found[cell.method].setdefault(question.tasks, cell.value)
    return dict(found)


def learning_curve(run: RunFolder) -> tuple[tuple[float, float], ...]:
    """Minutes and validation error; what is logged at a step comes before its validation."""
    log = run.read_log()
    seconds = {entry["step"]: entry["seconds"] for entry in log if "seconds" in entry}
    return tuple((seconds[e["step"]] / 60, e["validation"]) for e in log if "validation" in e and e["step"] in seconds)


def facts(learner: Trained, run: RunFolder) -> dict[str, str]:
    environment: dict[str, Any] = run.environment()
    parameters = sum(weight.numel() for weight in learner.method.parameters())
    training = learner.experiment.training
    return {
        "Network": f"a multi-layer perceptron and a prior, {parameters:,} parameters",
        "Meta-training": f"{training.steps:,} steps of {training.episodes} episodes",
        "Time": names.duration(learner.train_seconds / 60),
        "Hardware": learner.train_hardware,
        "Versions": f"sbmcl {environment['sbmcl']}, torch {environment['torch']}, Python {environment['python']}",
        "Commit": environment["commit"] or "unknown",
    }
