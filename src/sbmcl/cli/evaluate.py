"""`sbmcl evaluate`: run folders in, rows of results out, with the paper's numbers beside them."""

from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from sbmcl.cli.common import Exit, Failure, aside, console, device_named, shown, use_threads
from sbmcl.results import Row

Which = Literal["best", "last"]


def evaluate(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")],
    /,
    tasks: tuple[int, ...] = (),
    shots: tuple[int, ...] = (),
    episodes: int | None = None,
    map: bool = False,
    forgetting: bool = False,
    cost: bool = False,
    samples: bool = False,
    on: str | None = None,
    split: Literal["test", "validation"] = "test",
    which: Which | None = None,
    results: Path | None = None,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Score trained runs on streams of new tasks.

    Rows are appended to results.jsonl. Every method, run and machine is asked the same streams. The paper's axes are
    --tasks 10 20 50 100 200 500 and --shots 10 20 50 100 200.

    Args:
        runs: Run folders, as 'sbmcl train' makes them.
        tasks: Tasks in a stream, with 10 shots each; one setting for every number.
        shots: Shots of each task, with 10 tasks; one setting for every number. Without either: 10 tasks, 10 shots.
        episodes: Streams a setting; 512, or 20 for methods that learn each stream from nothing.
        map: Put the mode of the belief in place of the belief.
        forgetting: Ask about every earlier task after each task too: what is forgotten, and the curves of it.
        cost: Measure bytes of state and milliseconds to learn and to answer as a stream grows to 10,000 examples too.
        samples: Draw samples after each stream too, and say how many look like its classes; 50 streams unless --episodes says.
        on: Another data set than that of meta-training.
        split: The classes asked about; choose between models on validation, never on test.
        which: The best weights on validation or the last; without it the best, where there are any.
        results: The file to append to; results.jsonl in the run folder unless named.
        device: auto, cpu, cuda, cuda:1, ...
        threads: Cores to use; all unless limited.
    """
    from sbmcl.cost import cost as cost_of
    from sbmcl.evaluate import evaluate as ask
    from sbmcl.evaluate import load, settings
    from sbmcl.forgetting import forgetting as ask_again
    from sbmcl.likeness import among_others, likeness
    from sbmcl.results import append

    if not runs:
        raise Failure("which run? sbmcl evaluate RUN_FOLDER; 'sbmcl train RECIPE' makes one", Exit.USAGE)
    target = device_named(device)
    use_threads(threads)
    pairs = settings(tasks, shots) if tasks or shots else [(10, 10)]
    trained = [load(run, target, which) for run in runs]
    for learner, pair in product(trained, pairs if samples else []):
        among_others(learner, pair, on=on, split=split)  # refuses what could not be drawn, before long work
    for run, learner in zip(runs, trained, strict=True):
        count = episodes or learner.experiment.method.default_episodes
        asking = ask(learner, pairs, episodes=count, at_mode=map, on=on, split=split)
        file, found = results or run / "results.jsonl", []
        for number, (k, s) in enumerate(pairs, 1):
            with aside.status(f"{shown(run)}: {k} tasks x {s} shots, {count} streams ({number} of {len(pairs)})"):
                rows = next(asking)
                if forgetting:
                    rows += ask_again(learner, (k, s), episodes=count, at_mode=map, on=on, split=split)
                if samples:
                    rows += likeness(learner, (k, s), episodes=episodes, at_mode=map, on=on, split=split)
            append(file, rows)
            found += rows
        if cost:
            with aside.status(f"{shown(run)}: the cost of a growing stream"):
                rows = cost_of(learner)
            append(file, rows)
            found += rows
        console.print(beside_the_paper(found))
        aside.print(f"{len(found)} rows appended to [cyan]{shown(file)}[/]\n")
    aside.print("[dim]ours ± half the 95 % interval over streams; paper ± its spread over runs[/]")


def beside_the_paper(rows: list[Row]) -> Table:
    from sbmcl.report.cells import question_of, read_paper
    from sbmcl.report.names import size

    printed = {(cell.method, cell.question): cell for cell in reversed(read_paper())}
    first = rows[0]
    elsewhere = "" if first.meta_test == first.meta_train else f" on {first.meta_test}"
    title = f"[bold cyan]{first.recipe}[/]: {first.benchmark}{elsewhere}, {first.method}, seed {first.seed}, "
    title += f"a stream remembered in {size(rows[-1].state_bytes)}"
    table = Table(
        box=None, header_style="bold", padding=(0, 2, 0, 0), title=title, title_justify="left", title_style=""
    )
    for name in ("tasks", "shots", "metric", "ours", "paper", "seconds"):
        table.add_column(name, justify="left" if name == "metric" else "right", overflow="fold")
    for row in rows:
        if row.curve is not None:  # is for figures
            continue
        cell = printed.get((row.method, question_of(row)))
        table.add_row(
            f"{row.tasks}",
            f"{row.shots}",
            row.metric,
            with_spread(row.value, row.ci95),
            "" if cell is None else with_spread(cell.value, cell.std),
            f"{row.eval_seconds:.1f}",
        )
    return table


def with_spread(value: float, spread: float | None) -> str:
    return f"{value:.4g}" if spread is None else f"{value:.4g} ± {spread:.2g}"
