"""The demonstration in a terminal: what `diary` measured, in characters."""

from math import log10

from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from torch import Tensor

from sbmcl.demo.characters import Characters
from sbmcl.demo.diary import Sharpening
from sbmcl.report import names
from sbmcl.results import Row

BLOCKS = "▁▂▃▄▅▆▇█"


def tell_sharpening(console: Console, watched: Sharpening, task: int) -> None:
    console.print(f"\n  One query of task {task + 1}, asked again and again while the stream goes by:\n")
    console.print(f"  {'':28} [bold]{drawn(watched.truth, watched.truth)}[/]  the truth")
    for answer in watched.answers:
        curve = drawn(answer.mean, watched.truth)
        console.print(f"  {answer.when:28} [cyan]{curve}[/]  squared error {answer.error:.4f}")


def drawn(values: list[float], scale: list[float]) -> str:
    """A curve in one line, between the least and the greatest value of `scale`."""
    low, high = min(scale), max(scale)
    heights = [(value - low) / (high - low) * len(BLOCKS) for value in values[::2]]
    return "".join(BLOCKS[min(max(int(height), 0), len(BLOCKS) - 1)] for height in heights)


def tell_errors(console: Console, errors: list[list[float]]) -> None:
    tasks = len(errors[0])
    console.print(f"\n  Squared error of each task, in thousandths, as {tasks} are learned one by one:\n")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", justify="right", style="bold", no_wrap=True)
    for task in range(tasks + 1):
        table.add_column("before" if task == 0 else f"+{task}", justify="right", no_wrap=True)
    for task in range(tasks):
        cells = [f"[{shade(row[task])}]{thousandths(row[task])}[/]" for row in errors]
        table.add_row(f"  task {task + 1}", *cells)
    console.print(table)


def thousandths(error: float) -> str:
    return f"{1000 * error:.0f}" if error >= 0.01 else f"{1000 * error:.1f}"


def shade(error: float) -> str:
    """Bright green is known, grey is not."""
    known = min(max(-log10(max(error, 1e-9)) / 3, 0.0), 1.0)
    return "bold green" if known > 0.75 else "green" if known > 0.5 else "yellow" if known > 0.25 else "dim"


def tell_promises(console: Console, promises: dict[str, float]) -> None:
    console.print("\n  The same knowledge by two ways, and how far the answers differ, relatively:\n")
    for ways, difference in promises.items():
        console.print(f"    {ways:52} {difference:.0e}")


def tell_results(console: Console, rows: list[Row], paper: dict[str, dict[int, float]]) -> None:
    columns = [row.tasks for row in rows]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("  squared error; tasks:", no_wrap=True)
    for tasks in columns:
        table.add_column(f"{tasks:,}", justify="right", no_wrap=True)
    table.add_row("  [cyan]this run[/]", *(f"[cyan]{row.value:.4f}[/]" for row in rows))
    for method, values in paper.items():
        table.add_row(
            f"  [dim]paper:[/] {names.method(method)}", *(f"{values[k]:.3f}" if k in values else "" for k in columns)
        )
    console.print()
    console.print(table)
    console.print(f"\n  What it remembers a stream with: {names.size(rows[-1].state_bytes)}, however long the stream.")


def tell_characters(console: Console, seen: Characters, rows: list[Row], columns: int = 4) -> None:
    console.print("\n  One drawing of the first characters of the stream:\n")
    for lines in zip(*(dots(drawings[0]) for drawings in seen.drawn[:columns]), strict=True):
        console.print("    " + "  ".join(lines))
    at_first, at_last = [row[-1] for row in seen.right], seen.right[-1]
    console.print("\n  Right answers about each character, among all that were learned so far:\n")
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", style="bold", no_wrap=True)
    for task in range(len(at_last)):
        table.add_column(f"{task + 1}", justify="right", no_wrap=True)
    table.add_row("  when it was learned", *(f"{share:.0%}" for share in at_first))
    table.add_row("  at the end of the stream", *(f"{share:.0%}" for share in at_last))
    console.print(table)
    middle = len(seen.novel) // 2
    console.print(
        "\n  Halfway, a character that is still to come looks newer to it than a learned\n"
        f"  one in {seen.novel[middle]:.0%} of pairs.\n"
    )
    for row in rows:
        console.print(f"  Over {row.episodes} streams of {names.plural(row.tasks, 'character')}: error {row.value:.3f}")


def dots(ink: Float[Tensor, "h w"]) -> list[str]:
    """A drawing in braille: two pixels by four to a character."""
    bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of Unicode's block, by row and column
    dark = (ink > 0.5).unflatten(1, (-1, 2)).unflatten(0, (-1, 4)).tolist()  # block, row, block, column

    def block(row: list[list[list[bool]]], column: int) -> str:
        return chr(0x2800 + sum(bits[i][j] for i in range(4) for j in range(2) if row[i][column][j]))

    return ["".join(block(row, column) for column in range(len(row[0]))) for row in dark]
