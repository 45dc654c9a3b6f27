"""`sbmcl recipes`: what can be trained."""

import re
import time
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from sbmcl.cli.common import Exit, Failure, console, nearest
from sbmcl.recipes import ALL, Page, page


def recipes(words: Annotated[tuple[str, ...], tyro.conf.Positional] = (), check: bool = False) -> None:
    """List what can be trained, or show one recipe whole.

    Args:
        words: The name of one recipe; or words, to list the recipes that have all of them in name or description.
        check: Build each of them and take one step on stand-in data, to see that it would run here.
    """
    if not check and len(words) == 1 and words[0] in ALL:
        show(words[0])
        return
    pages = {name: page(recipe) for name, recipe in ALL.items()}
    found = {
        name: told
        for name, told in pages.items()
        if all(word.lower() in f"{name} {told.what}".lower() for word in words)
    }
    if not found:
        raise Failure(f"no recipe has {' and '.join(words)}{nearest(' '.join(words), ALL)}", Exit.USAGE)
    (checked if check else listing)(found)


def checked(pages: dict[str, Page]) -> None:
    from sbmcl.check import check

    failures = 0
    for name in pages:
        began = time.perf_counter()
        try:
            check(ALL[name]())
        except Exception as error:
            failures += 1
            console.print(f"[bold red]fails[/]  {name}: ", end="")
            console.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
        else:
            console.print(f"[green]runs[/]   {name}  [dim]{time.perf_counter() - began:.1f} s[/]")
    if failures:
        raise Failure(f"{failures} of {len(pages)} recipes fail")


def listing(pages: dict[str, Page]) -> None:
    """A line for each recipe under its benchmark; scores without what there is to say about them, which `show` tells."""
    headings = ("recipe", "paper", "ours", "time", "what it is")
    rows = {name: (f"  {name}", *map(figure, (t.paper, t.score, t.time)), t.what) for name, t in pages.items()}
    widths = [max(map(len, column)) for column in zip(headings, *rows.values(), strict=True)][:-1]

    cut = console.is_terminal  # a pipe gets whole lines

    def line(cells: tuple[str, ...], style: str) -> None:
        text = Text("  ".join([*map(str.ljust, cells, widths), cells[-1]]), style)
        console.print(text, no_wrap=True, overflow="ellipsis" if cut else "ignore", crop=cut)

    line(headings, "bold")
    benchmarks = {name: ALL[name]().benchmark for name in pages}
    for benchmark in dict.fromkeys(benchmarks.values()):
        console.print(f"[bold]{benchmark}[/]")
        for name in (name for name in pages if benchmarks[name] == benchmark):
            line(rows[name], "cyan")
    console.print(f"\n[dim]{len(pages)} of {len(ALL)}. One in full: sbmcl recipes NAME. Train it: sbmcl train NAME[/]")


def figure(told: str) -> str:
    """What stands before the first remark."""
    return re.split(r"[,;(]", told, maxsplit=1)[0].strip()


def show(name: str) -> None:
    """One recipe: what it is, what to expect, and every setting as it would be given to `sbmcl train`."""
    experiment, told = ALL[name](), page(ALL[name])
    console.print(f"[bold cyan]{name}[/]: {told.what}")
    for label, value in (("paper", told.paper), ("ours", told.score), ("time", told.time)):
        if value:
            console.print(f"  {label}: {value}", markup=False)
    console.print(f"  benchmark {experiment.benchmark}, in tables as {experiment.label}\n", markup=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for part in ("data", "method", "training"):
        config = getattr(experiment, part)
        table.add_row(f"[bold]{part}[/]", f"[bold]{type(config).__name__}[/]")
        for option, value in settings(part, config):
            table.add_row(f"[cyan]--{option}[/]", str(value))
    console.print(table)
    console.print(f"\n[dim]Train it: sbmcl train {name}. What a setting means: sbmcl train {name} --help[/]")


def settings(prefix: str, config: Any) -> list[tuple[str, Any]]:
    found = []
    for field in fields(config):
        option, value = f"{prefix}.{field.name.replace('_', '-')}", getattr(config, field.name)
        found += settings(option, value) if is_dataclass(value) else [(option, value)]
    return found
