"""The report as Markdown, for reading where the results lie. It says what the page says, from the same plain data."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from sbmcl.report import names
from sbmcl.report.claims import Claim
from sbmcl.report.figures import GROUPS, Figure
from sbmcl.report.page import caption, distance, ours, theirs
from sbmcl.report.summary import STATISTICS, UNLIKE_THE_PAPER, Summary
from sbmcl.report.tables import Cell, Hours, Table, budget, where


def render(
    summary: Summary,
    claims: Sequence[Claim],
    tables: Sequence[Table],
    hours: Sequence[Hours],
    runs: Sequence[Table],
    measures: Sequence[Table],
    figures: Sequence[Figure],
    gallery: Sequence[Path],
    pictures: str,
) -> str:
    """`pictures` is the folder of figures and gallery, relative to the file."""
    parts = ["# Results beside the paper", *_summary(summary)]
    if claims:
        parts += [
            "## Claims",
            _grid(("Claim", "Benchmark", "Verdict", "Evidence"), [_claim(claim) for claim in claims]),
        ]
    if figures:
        parts.append("## Figures")
    for group, members in groupby(figures, key=lambda figure: figure.group):
        parts += [f"### {group}", GROUPS[group]]
        parts += [f"![{figure.group}: {figure.title}]({pictures}/{figure.name}.svg)" for figure in members]
    for title, section in (("The paper's tables", tables), ("All runs", runs), ("Other measures", measures)):
        if section:
            parts += [f"## {title}", *(text for table in section for text in _table(table))]
    parts += ["## Meta-training time", names.PAPER_TABLES["tab:time"][1], _hours(hours)]
    if gallery:
        parts += ["## Gallery", *(f"![{caption(path)}]({pictures}/{path.name})" for path in gallery)]
    parts += ["## How to read this", *STATISTICS, "\n".join(f"* {text}" for text in UNLIKE_THE_PAPER)]
    return "\n\n".join(parts) + "\n"


def _summary(summary: Summary) -> list[str]:
    glance = [
        (where(*cell.question[:3]), theirs(cell), _bold(cell), distance(cell), _standing(cell), budget(cell) or "–")
        for cell in summary.glance
    ]
    return [
        summary.sentence,
        f"Hardware: {'; '.join(summary.hardware) or 'none yet'}.",
        "## SB-MCL at a glance",
        "At 10 tasks, 10 shots. Every metric is a loss: lower is better.",
        _grid(("Benchmark", "Paper", "Here", "Distance", "Standing", "Training"), glance),
    ]


def _claim(claim: Claim) -> tuple[str, str, str, str]:
    return claim.text, claim.benchmark, claim.verdict, claim.evidence


def _table(table: Table) -> list[str]:
    rows = [(row, *(_cell(table.cells.get((row, column))) for column in table.columns)) for row in table.rows]
    return [f"### {table.title}", table.about, _grid(("", *table.columns), rows)]


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    if cell.ours is None:
        return f"not run (paper {theirs(cell)})"
    if cell.published is None:
        return _bold(cell)
    return f"{_bold(cell)}<br>paper {theirs(cell)}<br>{_standing(cell)}, {distance(cell)}<br>{budget(cell)}"


def _bold(cell: Cell) -> str:
    value, _, spread = ours(cell).partition(" ")
    return f"**{value}** {spread}".strip() if cell.bold else f"{value} {spread}".strip()


def _standing(cell: Cell) -> str:
    return cell.standing.value if cell.standing else "–"


def _hours(hours: Sequence[Hours]) -> str:
    rows = [
        (
            names.TASKS[cell.task],
            names.method(cell.method),
            names.duration(60 * cell.theirs),
            "not run" if cell.ours is None else names.duration(60 * cell.ours),
            cell.hardware or "–",
        )
        for cell in hours
    ]
    return _grid(("Task", "Method", "Paper, A40", "Here", "Hardware"), rows)


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
