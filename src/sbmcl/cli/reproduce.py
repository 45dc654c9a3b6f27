"""`sbmcl reproduce`: tables and figures of the paper in, the rows they lack and a report out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.table import Table

from sbmcl.cli.common import Exit, Failure, aside, console, device_named, seconds_in, shown
from sbmcl.recipes import ALL

if TYPE_CHECKING:
    from sbmcl.reproduce import Expected, Plan


def reproduce(
    targets: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE|FIGURE|all")] = ("all",),
    /,
    budget: str = "paper",
    seeds: int = 1,
    dry_run: bool = False,
    jobs: int = 1,
    runs: Path = Path("runs"),
    results: Path = Path("results"),
    report: Path = Path("report"),
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Train and evaluate what the paper's tables lack here, then write the report.

    Whatever stops it, the same command goes on where it was: runs from their checkpoints, and what has its row in the results
    is not done again.

    Args:
        targets: What to reproduce: tables (tab:clf, app:sine_tasks), figures (fig:longer, fig:forgetting, fig:cost), benchmarks
            (casia/vae), data sets (sine) or all.
        budget: Meta-training of each run: paper is all of the published steps; a time (30m) is as many as fit into it.
        seeds: Runs of each recipe; the paper's tables have 5.
        dry_run: Only say what is missing, and how long it should take here.
        jobs: Runs side by side; they share the cores.
        runs: Where run folders are.
        results: Where rows are, and go.
        report: Where the report goes.
        device: auto, cpu, cuda, cuda:1, ...
        threads: Cores to use in all; all unless limited.
    """
    from sbmcl.report import write_report
    from sbmcl.reproduce import Budget, Workplace, expect, plan, rows_in
    from sbmcl.reproduce import reproduce as do
    from sbmcl.train import Interrupted

    target, rows = device_named(device), rows_in(results)
    limit = None if budget == "paper" else Budget(budget, seconds_in(budget))
    made = plan(targets, ALL, rows, budget=limit, seeds=seeds)
    if dry_run:
        with aside.status("measuring the pace of this machine"):
            expected = [expect(job, rows, runs, target) for job in made.jobs]
        console.print(listing(made, expected))
        console.print(summary(made, expected))
        return
    aside.print(f"{made.answered} cells have their rows; {len(made.jobs)} runs to make or ask")
    place = Workplace(runs, results, str(target), threads)
    try:
        failures = do(made, place, jobs=jobs)
    except Interrupted as stop:
        raise Failure(f"{stop}, or the same 'sbmcl reproduce' again", Exit.INTERRUPTED) from stop
    if results.exists():
        aside.print(f"report: [cyan]{shown(write_report([results], report)[0])}[/]")
    if failures:
        told = "\n".join(f"  {failed.job.name}: {failed.why}" for failed in failures)
        raise Failure(f"{len(failures)} of {len(made.jobs)} runs could not be done:\n{told}")


def listing(made: "Plan", expected: "list[Expected]") -> Table:
    from sbmcl.report.names import duration

    def time(seconds: float | None) -> str:
        return "?" if seconds is None else duration(seconds / 60)

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", style="cyan", no_wrap=True)
    for name in ("cells", "training", "evaluation"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold", style="dim")
    for job, times in zip(made.jobs, expected, strict=True):
        table.add_row(job.name, str(len(job.asks)), time(times.training), time(times.asking), times.why)
    return table


def summary(made: "Plan", expected: "list[Expected]") -> str:
    from sbmcl.report.names import duration

    known = sum(seconds for times in expected for seconds in (times.training, times.asking) if seconds is not None)
    unknown = sum(None in (times.training, times.asking) for times in expected)
    cells = sum(len(job.asks) for job in made.jobs)
    text = f"\n{cells} cells are missing, {made.answered} are there. Expected: {duration(known / 60)} one after another"
    if unknown:
        text += f", without {unknown} runs that have no figure"
    if made.without_recipe:
        text += f".\nNo recipe yet: {', '.join(made.without_recipe)}"
    return text + "."
