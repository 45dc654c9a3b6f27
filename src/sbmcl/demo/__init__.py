"""The demonstration behind `make run` and `sbmcl demo`: train, learn two streams, look, and write a page about them.

diary, characters    what is measured on the streams      terminal, page    how it is shown
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console

from sbmcl.config import ALPaCA, GeMCL, Glyphs, Sine
from sbmcl.data.episodes import EpisodeShape, EpisodeSource
from sbmcl.demo import characters, diary, page, terminal
from sbmcl.evaluate import TASKS, Trained, evaluate, load
from sbmcl.experiment import Experiment
from sbmcl.methods import conjugate
from sbmcl.recipes.glyphs import glyphs_gemcl_quick
from sbmcl.recipes.sine import sine_alpaca_quick
from sbmcl.report import names
from sbmcl.report.cells import read_paper
from sbmcl.results import TRAINING, Row, append
from sbmcl.runs import RunFolder, write_atomically
from sbmcl.train import train

STREAM = EpisodeShape(tasks=10, shots=10, queries=10)
FEW = EpisodeShape(tasks=10, shots=5, queries=10)
WATCHED = 2  # the task whose first query is asked again and again, counted from 0


@dataclass(frozen=True)
class Effort:
    """How much is done; a test does less."""

    steps: int = 1_200
    tasks: tuple[int, ...] = TASKS
    episodes: int = 64
    character_steps: int = 250
    character_tasks: tuple[int, ...] = (10, 100)
    character_episodes: int = 32


def sine_experiment(steps: int) -> Experiment[Sine, ALPaCA]:
    """The quick sine recipe, cut down to two minutes."""
    quick = sine_alpaca_quick()
    training = replace(quick.training, steps=steps, validate_every=150, validation_episodes=32)
    return replace(quick, recipe="demo", training=training)


def character_experiment(steps: int) -> Experiment[Glyphs, GeMCL]:
    """The quick glyph recipe, cut down to one minute."""
    quick = glyphs_gemcl_quick()
    shape = replace(FEW, queries=5)
    training = replace(quick.training, steps=steps, shape=shape, warmup=20, validate_every=steps, validation_episodes=8)
    return replace(quick, recipe="demo-characters", training=training)


def show(folder: Path, effort: Effort | None = None) -> Path:
    """The whole demonstration; returns the page. Begun again after a stop, it goes on; trained networks are used again."""
    console, effort = Console(highlight=False), effort or Effort()
    sections = show_sines(folder, effort, console) | show_characters(folder / "characters", effort, console)
    write_atomically(folder / "report.html", page.render(sections).encode())
    heading(console, "All of this, with pictures")
    console.print(f"\n  {(folder / 'report.html').resolve().as_uri()}\n", soft_wrap=True)
    console.print("  Next: [cyan]sbmcl recipes[/] lists what can be trained, [cyan]sbmcl --help[/] shows the way.")
    return folder / "report.html"


def show_sines(folder: Path, effort: Effort, console: Console) -> dict[str, str]:
    """Functions learned one after another by Bayesian regression; the sections of the page about them."""
    heading(console, "1  Meta-training: the only part that changes the networks")
    console.print(
        "\n  Every step draws 16 streams of 10 sine functions, learns each by Bayesian\n"
        "  regression on the network's outputs, and improves the network by its mistakes.\n"
    )
    run = trained_run(folder, sine_experiment(effort.steps), "about two minutes", console)
    learner, source = trained(run)
    method = cast(conjugate.ALPaCA, learner.method)

    heading(console, f"2  One stream of {STREAM.tasks} new tasks: the networks are frozen, a belief learns")
    episode = source.draw(STREAM, 1, diary.held_out())
    watched = diary.sharpening(method, episode, task=WATCHED)
    errors = diary.errors_by_task(method, episode)
    promises = diary.promises(method, episode, forgotten=WATCHED)
    terminal.tell_sharpening(console, watched, WATCHED)
    terminal.tell_errors(console, errors)
    terminal.tell_promises(console, promises)

    heading(console, f"3  Streams of up to {effort.tasks[-1]:,} tasks")
    rows = list(scores(learner, effort.tasks, STREAM.shots, effort.episodes, console))
    append(folder / "results.jsonl", rows)
    paper = published()
    terminal.tell_results(console, rows, paper)
    curve = replace(rows[0], metric=TRAINING, scores=None, curve=learning_curve(run))
    return page.sines(facts(learner, run), watched, errors, promises, rows, paper, curve)


def show_characters(folder: Path, effort: Effort, console: Console) -> dict[str, str]:
    """Characters learned one after another from a few drawings; the sections of the page about them."""
    heading(console, f"4  Characters: {FEW.shots} drawings of each, and never an old one again")
    console.print(
        "\n  A program draws endless alphabets of its own. A network is meta-trained to\n"
        "  tell characters apart by Gaussian classes on its outputs, and frozen; then come\n"
        "  characters that were never drawn before.\n"
    )
    run = trained_run(folder, character_experiment(effort.character_steps), "about a minute", console)
    learner, source = trained(run)
    episode = source.draw(FEW, 1, diary.held_out())
    seen = characters.watch(cast(conjugate.ClassConjugate[Any], learner.method), episode)
    rows = list(scores(learner, effort.character_tasks, FEW.shots, effort.character_episodes, console))
    append(folder / "results.jsonl", rows)
    terminal.tell_characters(console, seen, rows)
    return page.characters(facts(learner, run), seen, rows)


def heading(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/]", align="left", style="dim")


def trained_run(folder: Path, wanted: Experiment[Any, Any], time: str, console: Console) -> RunFolder:
    device = torch.device("cpu")
    if (folder / "config.json").exists():
        run = RunFolder.open(folder)
        if run.experiment() != wanted:
            raise ValueError(
                f"{folder} holds another experiment; delete it, or name another folder: sbmcl demo --run FOLDER"
            )
    else:
        run = RunFolder.create(folder, wanted, device)
    steps = wanted.training.steps
    if run.checkpoint_step() >= steps:
        console.print(f"  Already done, in {folder}; delete that folder to train anew.")
    else:
        console.print(f"  {steps:,} steps, {time} on two idle cores.\n  After Ctrl-C, the next time goes on.\n")
    train(wanted, run, device)
    return run


def trained(run: RunFolder) -> tuple[Trained, EpisodeSource]:
    """What is evaluated, and where its new tasks come from."""
    learner = load(run.path, torch.device("cpu"))
    source = learner.experiment.data.source("test")
    assert source is not None, "only a validation split may be switched off"
    return learner, source


def scores(learner: Trained, tasks: tuple[int, ...], shots: int, episodes: int, console: Console) -> Iterator[Row]:
    for count in tasks:
        with console.status(f"  {episodes} streams of {names.plural(count, 'task')}"):
            (rows,) = evaluate(learner, [(count, shots)], episodes=episodes)
        yield next(row for row in rows if row.metric == learner.method.head.metric)


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
        "Network": f"an encoder and a prior, {parameters:,} parameters",
        "Meta-training": f"{training.steps:,} steps of {training.episodes} episodes",
        "Time": names.duration(learner.train_seconds / 60),
        "Hardware": learner.train_hardware,
        "Versions": f"sbmcl {environment['sbmcl']}, torch {environment['torch']}, Python {environment['python']}",
        "Commit": environment["commit"] or "unknown",
    }
