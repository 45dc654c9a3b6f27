"""The report as one HTML file that needs nothing else: no script, no font, no picture from elsewhere.

It may know everything the other files of this room give, and only writes it out.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from sbmcl.report import names
from sbmcl.report.cells import UNTRAINED, Standing
from sbmcl.report.claims import Claim
from sbmcl.report.figures import GROUPS, Figure, scheme
from sbmcl.report.summary import STATISTICS, UNLIKE_THE_PAPER, Summary
from sbmcl.report.tables import Cell, Hours, Table, budget

SHORT = {
    Standing.REPRODUCED: ("reproduced", "reproduced"),
    Standing.BETTER: ("better", "better"),
    Standing.WORSE: ("worse", "worse"),
    Standing.REDUCED_REACHED: ("reached early", "reached"),
    Standing.REDUCED_SHORT: ("short so far", "short"),
    Standing.NOT_RUN: ("not run", "unrun"),
}
ACCOUNT = (
    *("Row", "Column", "Here", "95 % interval", "Seeds", "Episodes", "Paper", "Distance", "Standing"),
    *("Training", "Trained on", "Command"),
)
STYLE = files("sbmcl") / "assets" / "report.css"


def render(
    summary: Summary,
    claims: Sequence[Claim],
    tables: Sequence[Table],
    hours: Sequence[Hours],
    runs: Sequence[Table],
    measures: Sequence[Table],
    figures: Sequence[Figure],
    gallery: Sequence[Path],
) -> str:
    sections = [
        ("summary", "Summary", _summary(summary)),
        ("claims", "Claims", _claims(claims)),
        ("figures", "Figures", _figures(figures)),
        ("tables", "The paper's tables", "".join(map(_table, tables[:4])) + _hours(hours)),
        ("appendix", "Its appendix", "".join(map(_table, tables[4:]))),
        ("runs", "All runs", "".join(map(_table, runs))),
        ("measures", "Other measures", "".join(map(_table, measures))),
        ("gallery", "Gallery", _gallery(gallery)),
        ("method", "How to read this", _method()),
    ]
    sections = [(anchor, title, body) for anchor, title, body in sections if body]
    nav = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in sections)
    main = "".join(f'<section id="{anchor}"><h2>{title}</h2>{body}</section>' for anchor, title, body in sections)
    light, dark = scheme()
    colours = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>sbmcl: results beside the paper</title>'
        f"<style>{colours}{STYLE.read_text()}</style></head><body>"
        "<header><p class=over>sbmcl</p><h1>Results beside the paper</h1>"
        "<p class=lead>Every number of <cite>Learning to Continually Learn with the Bayesian Principle</cite> (ICML 2024), "
        "next to what this library measured, how far apart the two are, and what ours was allowed.</p></header>"
        f"<nav>{nav}</nav><main>{main}</main></body></html>\n"
    )


def _summary(summary: Summary) -> str:
    bar = "".join(
        f'<span class="{SHORT[standing][1]}" style="flex-grow:{count}" title="{standing.value}: {count}"></span>'
        for standing, count in summary.standings.items()
        if count
    )
    legend = "".join(
        f'<li><i class="{SHORT[standing][1]}"></i><b>{count}</b> {standing.value}</li>'
        for standing, count in summary.standings.items()
    )
    low, high = summary.episodes
    facts = {
        "Runs": f"{names.plural(summary.runs, 'meta-training')}, {names.plural(summary.settings, 'row')} of results",
        "Episodes": f"{low}" if low == high else f"{low} to {high} a setting",
        "Hardware": "; ".join(summary.hardware) or "none yet",
        "Commits": ", ".join(summary.commits) or "unknown",
    }
    facts_html = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    rows = "".join(
        f"<tr><th scope=row>{escape(_glance_name(cell))}</th><td>{_theirs(cell)}</td><td>{_ours(cell)}</td>"
        f"<td>{_distance(cell)}</td><td>{_chip(cell)}</td><td class=note>{escape(budget(cell))}</td></tr>"
        for cell in summary.glance
    )
    return (
        f'<p class=lead>{summary.sentence}</p><div class=bar role="img" aria-label="{escape(summary.sentence)}">{bar}</div>'
        f"<ul class=legend>{legend}</ul><dl>{facts_html}</dl>"
        "<h3>SB-MCL at a glance</h3><p>At 10 tasks, 10 shots. Every metric is a loss: lower is better.</p>"
        "<div class=scroll><table><thead><tr><th>Benchmark</th><th>Paper</th><th>Here</th><th>Distance</th><th>Standing</th>"
        f"<th>Training</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _glance_name(cell: Cell) -> str:
    question = cell.question
    on = "" if question.meta_test == question.meta_train else f", tested on {names.DATA[str(question.meta_test)]}"
    return names.benchmark(question.benchmark) + on


def _claims(claims: Sequence[Claim]) -> str:
    parts = []
    for text, group in groupby(claims, key=lambda claim: claim.text):
        rows = "".join(
            f"<tr><th scope=row>{escape(claim.benchmark)}</th>"
            f'<td><span class="chip {"reproduced" if claim.verdict == "holds" else "worse"}">{claim.verdict}</span></td>'
            f"<td class=text>{escape(claim.evidence)}</td></tr>"
            for claim in group
        )
        parts.append(
            f"<h3>{escape(text)}</h3><div class=scroll><table class=claims><tbody>{rows}</tbody></table></div>"
        )
    if not parts:
        return ""
    return f"<p>What the paper says in words, tested on our rows at the 5 % level.</p>{''.join(parts)}"


def _figures(figures: Sequence[Figure]) -> str:
    parts = []
    for group, members in groupby(figures, key=lambda figure: figure.group):
        panels = "".join(
            f"<figure><figcaption>{escape(figure.title)}</figcaption>{figure.svg}</figure>" for figure in members
        )
        parts.append(f"<h3>{group}</h3><p>{escape(GROUPS[group])}</p><div class=panels>{panels}</div>")
    return "".join(parts)


def _table(table: Table) -> str:
    head = "".join(f"<th scope=col>{escape(column)}</th>" for column in table.columns)
    body = "".join(
        f"<tr><th scope=row>{escape(row)}</th>"
        + "".join(_cell(table.cells.get((row, column))) for column in table.columns)
        + "</tr>"
        for row in table.rows
    )
    return (
        f"<article id={table.anchor}><h3>{escape(table.title)}</h3><p>{escape(table.about)}</p>"
        f"<div class=scroll><table class=cells><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{_account(table)}</article>"
    )


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td class=empty>–</td>"
    if cell.ours is None:
        return f'<td class=unrun><span class=theirs>{_theirs(cell)}</span><span class="chip unrun">not run</span></td>'
    theirs = f"<span class=theirs>paper {_theirs(cell)}</span>" if cell.published else ""
    chip = f"{_chip(cell)} <span class=distance>{_distance(cell)}</span>" if cell.published else ""
    return f"<td><span class=ours>{_ours(cell)}</span>{theirs}<span>{chip}</span></td>"


def _account(table: Table) -> str:
    """Everything there is to say of each cell, for who wants to check it."""
    rows = "".join(
        f"<tr><th scope=row>{escape(cell.row)}</th><td>{escape(cell.column)}</td><td>{_ours(cell)}</td><td>{_interval(cell)}</td>"
        f"<td>{_seeds(cell)}</td><td>{cell.ours.episodes if cell.ours else '–'}</td><td>{_theirs(cell)}</td>"
        f"<td>{_distance(cell)}</td><td class=text>{cell.standing.value if cell.standing else '–'}</td>"
        f"<td class=text>{escape(budget(cell)) or '–'}</td><td class=text>{escape(_hardware(cell))}</td>"
        f"<td class=text><code>{escape(cell.command)}</code></td></tr>"
        for cell in table.cells.values()
    )
    head = "".join(f"<th scope=col>{title}</th>" for title in ACCOUNT)
    return (
        "<details><summary>The account of every cell, and what makes it</summary><div class=scroll><table class=account>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _hours(hours: Sequence[Hours]) -> str:
    rows = "".join(
        f"<tr><th scope=row>{_sentence_case(names.TASKS[cell.task])}, {names.method(cell.method)}</th><td>{_time(cell.theirs)}</td>"
        f"<td>{_time(cell.ours)}</td><td class=text>{escape(cell.hardware) or 'not run'}</td><td class=text>{cell.recipe}</td></tr>"
        for cell in hours
    )
    title, about = names.PAPER_TABLES["tab:time"]
    return (
        f"<article id=time><h3>{title}</h3><p>{about} Ours is measured over the steps that were run and scaled to 50,000; "
        "another machine, so there is no distance.</p><div class=scroll><table><thead><tr><th></th><th>Paper, A40</th><th>Here</th>"
        f"<th>Hardware</th><th>Recipe</th></tr></thead><tbody>{rows}</tbody></table></div></article>"
    )


def _sentence_case(words: str) -> str:
    return words[0].upper() + words[1:]


def _gallery(pictures: Iterable[Path]) -> str:
    return "".join(
        f'<figure class=picture><img alt="{escape(caption(path))}" src="data:image/png;base64,'
        f'{b64encode(path.read_bytes()).decode()}"><figcaption>{escape(caption(path))}</figcaption></figure>'
        for path in pictures
    )


def caption(picture: Path) -> str:
    return picture.stem.replace("-", " ").replace("_", " ")


def _method() -> str:
    statistics = "".join(f"<p>{escape(text)}</p>" for text in STATISTICS)
    unlike = "".join(f"<li>{escape(text)}</li>" for text in UNLIKE_THE_PAPER)
    return f"{statistics}<h3>Where the paper's own numbers need care</h3><ul>{unlike}</ul>"


def _chip(cell: Cell) -> str:
    if cell.standing is None:
        return ""
    text, tone = SHORT[cell.standing]
    return f'<span class="chip {tone}" title="{cell.standing.value}">{text}</span>'


def _ours(cell: Cell) -> str:
    text = ours(cell)
    value, _, spread = text.partition(" ")
    value = f"<b>{value}</b>" if cell.bold else value
    return f"{value} <span class=spread>{spread}</span>" if spread else value


def ours(cell: Cell) -> str:
    """Mean and spread over seeds; of one seed, mean and the 95 % interval over episodes."""
    if cell.ours is None:
        return "–"
    decimals = cell.published.decimals if cell.published else 3
    value = names.number(cell.ours.value, decimals)
    decimals = len(value.partition(".")[2])
    if cell.ours.spread is not None:
        return f"{value} ± {cell.ours.spread:.{decimals}f}"
    if cell.ours.interval is None:
        return value
    low, high = cell.ours.interval
    return f"{value} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _theirs(cell: Cell) -> str:
    return theirs(cell).replace(" ± ", " <span class=spread>± ") + ("</span>" if " ± " in theirs(cell) else "")


def theirs(cell: Cell) -> str:
    if cell.published is None:
        return "–"
    value = f"{cell.published.value:.{cell.published.decimals}f}"
    return value if cell.published.std is None else f"{value} ± {cell.published.std:.{cell.published.decimals}f}"


def _distance(cell: Cell) -> str:
    return distance(cell)


def distance(cell: Cell) -> str:
    if cell.distance is None:
        return "–"
    return f"{round(cell.distance, 1) + 0.0:+.1f} σ".replace("-", "−")


def _interval(cell: Cell) -> str:
    if cell.ours is None or cell.ours.interval is None:
        return "–"
    low, high = cell.ours.interval
    return f"{names.number(low, 4)} to {names.number(high, 4)}"


def _seeds(cell: Cell) -> str:
    return ", ".join(str(row.seed) for row in cell.ours.rows) if cell.ours else "–"


def _hardware(cell: Cell) -> str:
    if cell.ours is None:
        return "–"
    untrained = cell.ours.rows[0].method in UNTRAINED
    return "; ".join(sorted({row.hardware if untrained else row.train_hardware for row in cell.ours.rows}))


def _time(hours: float | None) -> str:
    return "–" if hours is None else names.duration(60 * hours)
