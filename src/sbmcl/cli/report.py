"""`sbmcl report`: result files in, the paper's tables and figures out."""

from pathlib import Path

from sbmcl.cli.common import aside, shown


def report(results: tuple[Path, ...] = (Path("results"),), out: Path = Path("report")) -> None:
    """Write tables and figures of results beside the paper's.

    Args:
        results: Result files, or folders with results in *.jsonl files.
        out: The folder to write.
    """
    from sbmcl.report import write_report

    for path in write_report(list(results), out):
        aside.print(f"wrote [cyan]{shown(path)}[/]")
