"""`sbmcl recipes`: what can be trained."""

from dataclasses import fields, is_dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from sbmcl.cli.common import Exit, Failure, console, nearest
from sbmcl.recipes import ALL, Page, page


def recipes(words: Annotated[tuple[str, ...], tyro.conf.Positional] = ()) -> None:
    """List what can be trained, or show one recipe whole.

    Args:
        words: The name of one recipe; or words, to list the recipes that have all of them in name or description.
    """
    if len(words) == 1 and words[0] in ALL:
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
    listing(found)


def listing(pages: dict[str, Page]) -> None:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("recipe", style="cyan", no_wrap=True)
    table.add_column("what it is", ratio=1)
    table.add_column("paper", justify="right")
    table.add_column("ours", overflow="fold")
    table.add_column("time", overflow="fold")
    for name, told in pages.items():
        table.add_row(name, told.what, told.paper, told.score, told.time)
    console.print(table)
    console.print(f"\n[dim]{len(pages)} of {len(ALL)}. One in full: sbmcl recipes NAME. Train it: sbmcl train NAME[/]")


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
