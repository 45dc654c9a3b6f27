"""`sbmcl train`: a recipe or a run folder in, a run folder out."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import tyro

from sbmcl.cli.common import (
    STYLE,
    Exit,
    Failure,
    aside,
    console,
    device_named,
    nearest,
    outcomes,
    seconds_in,
    shown,
    use_threads,
)
from sbmcl.config import DataConfig, MethodConfig, Training
from sbmcl.experiment import Experiment
from sbmcl.recipes import ALL

if TYPE_CHECKING:
    import torch

D = TypeVar("D", bound=DataConfig)
M = TypeVar("M", bound=MethodConfig)

USAGE = """\
[bold]usage[/] sbmcl train RECIPE|RUN_FOLDER [options]

Meta-train a recipe, or go on with or repeat what a run folder holds. The folder made for it has everything to do so: the
whole configuration, the environment, the log, the weights.

  sbmcl train sine-alpaca-quick                       into runs/sine-alpaca-quick-0
  sbmcl train sine-alpaca-quick --resume              go on after Ctrl-C, a crash or a kill, to the same final weights
  sbmcl train sine-alpaca --budget 15m                as many steps as fit into a quarter of an hour on this machine
  sbmcl train omniglot-gemcl --training.lr 3e-4 --seed 1
  sbmcl train runs/sine-alpaca-quick-0 --run runs/again    the same experiment once more

All options of a recipe, with what they mean: [cyan]sbmcl train RECIPE --help[/]
All recipes: [cyan]sbmcl recipes[/]"""


@dataclass(frozen=True)
class Options(Generic[D, M]):
    """Meta-train, into a run folder that holds everything needed to resume, repeat and evaluate it."""

    data: D
    method: M
    training: Training
    run: Path | None = None
    """The run folder; runs/RECIPE-SEED unless named."""
    seed: int = 0
    """Decides the weights at the start and every episode."""
    resume: bool = False
    """Go on with the run folder if there is one already; its settings stay as they are."""
    budget: str | None = None
    """Train as many steps as fit into this time on this machine (90s, 15m, 1h30m), measured before the start."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    threads: int | None = None
    """Cores to use; all unless limited."""

    @classmethod
    def of(cls, experiment: Experiment[D, M], **others: Any) -> "Options[D, M]":
        return cls(
            experiment.data,
            experiment.method,
            experiment.training,
            seed=experiment.seed,
            budget=experiment.budget,
            **others,
        )

    def apply(self, experiment: Experiment[D, M]) -> Experiment[D, M]:
        return replace(
            experiment,
            data=self.data,
            method=self.method,
            training=self.training,
            seed=self.seed,
            budget=self.budget,
        )


def train(arguments: list[str]) -> None:
    """Meta-train a recipe, resume a run, or repeat one."""
    if not arguments or arguments[0] in ("--help", "-h"):
        console.print(USAGE)
        return
    target, rest = arguments[0], arguments[1:]
    original = known(target)
    options, experiment = parsed(target, rest, original)
    folder = options.run or (default_folder(experiment) if target in ALL else Path(target))
    from sbmcl.team import joined

    device = device_named(options.device)
    use_threads(options.threads)
    with joined(device) as team:
        aside.quiet = not team.leads
        if options.resume and (folder / "config.json").exists():
            saved = experiment_in(folder)
            refuse_changes(folder, saved, parsed(target, rest, saved)[1])
            work(saved, folder, device)
        else:
            begin(experiment, folder, device, fit=experiment.budget != original.budget)
            work(experiment_in(folder), folder, device)


def parsed(
    target: str, rest: list[str], default: Experiment[Any, Any]
) -> tuple[Options[Any, Any], Experiment[Any, Any]]:
    options = tyro.cli(
        Options[type(default.data), type(default.method)],  # pyright: ignore[reportInvalidTypeArguments]
        prog=f"sbmcl train {target}",
        args=rest,
        default=Options.of(default),
        config=STYLE,
    )
    return options, options.apply(default)


def known(target: str) -> Experiment[Any, Any]:
    """What a name or a folder stands for."""
    if target in ALL:
        return ALL[target]()
    if (Path(target) / "config.json").exists():
        return experiment_in(Path(target))
    if target.startswith("-"):
        raise Failure(f"the recipe comes first: sbmcl train RECIPE {target} ...", Exit.USAGE)
    if Path(target).is_dir():
        raise Failure(f"{target} is no run folder (it has no config.json); 'sbmcl train RECIPE' makes one", Exit.USAGE)
    raise Failure(
        f"no recipe or run folder is called {target!r}{nearest(target, ALL)} 'sbmcl recipes' lists all.", Exit.USAGE
    )


def experiment_in(folder: Path) -> Experiment[Any, Any]:
    from sbmcl.runs import RunFolder

    return RunFolder.open(folder).experiment()


def default_folder(experiment: Experiment[Any, Any]) -> Path:
    return Path("runs") / f"{experiment.recipe}-{experiment.seed}"


def refuse_changes(folder: Path, saved: Experiment[Any, Any], asked: Experiment[Any, Any]) -> None:
    if asked == saved:
        return
    mine, theirs = flat(asked.to_json()), flat(saved.to_json())
    changed = ", ".join(
        f"{name} is {theirs[name]}, not {mine[name]}" for name in mine if mine[name] != theirs.get(name)
    )
    raise Failure(
        f"{shown(folder)} was begun with other settings: {changed}. A resumed run keeps its settings; "
        f"start another with --run NEW_FOLDER.",
        Exit.USAGE,
    )


def flat(plain: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, value in plain.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def begin(experiment: Experiment[Any, Any], folder: Path, device: "torch.device", *, fit: bool) -> None:
    """Make the run folder, after everything that could stop the run at its first step has been checked."""
    from sbmcl.runs import RunFolder
    from sbmcl.team import Team
    from sbmcl.train import steps_within

    team = Team.current()

    RunFolder.refuse_used(folder)
    for split in ("train", "validation"):
        if (source := experiment.data.source(split)) is not None:
            source.check(experiment.training.shape)
    if not experiment.method.meta_trained:
        experiment = replace(experiment, budget=None, training=replace(experiment.training, steps=0))
    elif fit and experiment.budget is not None:
        seconds = seconds_in(experiment.budget)
        aside.print("measuring the pace of this machine ...")
        steps = team.agreed(steps_within(experiment, seconds, device))
        aside.print(f"{steps:,} steps fit into {experiment.budget}")
        experiment = replace(experiment, training=replace(experiment.training, steps=steps))
    team.wait()  # until none will look any more whether there is such a folder
    if team.leads:
        RunFolder.create(folder, experiment, device)
    team.wait()


def work(experiment: Experiment[Any, Any], folder: Path, device: "torch.device") -> None:
    """Train to the end, and say what to do next."""
    from sbmcl.runs import RunFolder, hardware
    from sbmcl.train import train as meta_train

    run, training, path = RunFolder.open(folder), experiment.training, shown(folder)
    aside.print(f"[bold]{experiment.recipe}[/] in [cyan]{path}[/]")
    done = run.checkpoint_step()
    if training.steps == 0:
        aside.print("nothing to meta-train: this method starts every stream from nothing")
    elif done >= training.steps:
        aside.print(f"already trained: all {training.steps:,} steps are done")
    else:
        shape = f"{training.shape.tasks} tasks x {training.shape.shots} shots"
        begun = f"from step {done:,}, " if done else ""
        aside.print(f"{begun}{training.steps:,} steps of {training.episodes} episodes ({shape}) on {hardware(device)}")
    with outcomes():
        meta_train(experiment, run, device)
    aside.print(f"Evaluate it: [cyan]sbmcl evaluate {path}[/]")
