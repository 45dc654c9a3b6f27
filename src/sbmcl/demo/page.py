"""The page that the demonstration ends with: one HTML file that needs nothing else. It only writes out what it is given."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from io import BytesIO
from math import log10

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from sbmcl.demo.characters import Characters
from sbmcl.demo.diary import Answer, Sharpening
from sbmcl.report import names
from sbmcl.report.cells import answers, read_paper
from sbmcl.report.figures import draw, scheme
from sbmcl.results import Row

WIDE, HIGH = 360, 190  # of a panel, in its own units


def render(sections: dict[str, str]) -> str:
    """The page of these sections, by title."""
    light, dark = scheme()
    colours = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    style = "".join((files("sbmcl") / "assets" / name).read_text() for name in ("report.css", "demo.css"))
    main = "".join(f"<section><h2>{title}</h2>{body}</section>" for title, body in (sections | NEXT).items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>sbmcl: streams learned without forgetting</title><style>{colours}{style}</style></head><body>"
        "<header><p class=over>sbmcl</p><h1>Streams learned without forgetting</h1>"
        f"<p class=lead>{LEAD}</p></header><main>{main}</main></body></html>\n"
    )


def sines(
    facts: dict[str, str],
    watched: Sharpening,
    errors: list[list[float]],
    promises: dict[str, float],
    rows: Sequence[Row],
    paper: dict[str, dict[int, float]],
    curve: Row,
) -> dict[str, str]:
    figures = {figure.group: figure.svg for figure in draw(answers([*rows, curve]), read_paper())}
    return {
        "One question, asked again and again": _sharpening(watched),
        f"{len(errors[0])} tasks, one after another, none forgotten": _errors(errors),
        "Promises that can be checked": _promises(promises),
        f"Streams of up to {rows[-1].tasks} tasks": _results(rows, paper, figures),
        "How it was trained": _training(facts, figures),
    }


def characters(facts: dict[str, str], seen: Characters, rows: Sequence[Row]) -> dict[str, str]:
    return {
        f"{len(seen.drawn)} characters, a few drawings of each": _characters(seen, rows),
        "How that network was trained": _training(facts, {}),
    }


LEAD = (
    "Networks were meta-trained, on sine functions and on drawn characters, and have been frozen since. Everything below was "
    "learned afterwards, by Bayes' rule alone: every example adds its evidence to a belief, and nothing is ever overwritten."
)
NEXT = {
    "Where to go next": """<pre><code>sbmcl recipes                     everything that can be trained, with the paper's scores
sbmcl train sine-alpaca-quick     the first of these models, trained for longer
sbmcl evaluate runs/sine-alpaca-quick-0 --tasks 10 20 50 100 200 500
sbmcl report --results runs       every result beside the paper's numbers</code></pre>"""
}


def _sharpening(watched: Sharpening) -> str:
    reach = 1.15 * max(abs(value) for value in [*watched.truth, *watched.answers[-1].mean])
    panels = "".join(
        f"<figure>{_panel(watched.truth, answer, reach)}<figcaption>{escape(answer.when.capitalize())} "
        f"<span>squared error {answer.error:.4f}</span></figcaption></figure>"
        for answer in watched.answers
    )
    return (
        "<p>A task is one sine function. Its examples are noisy samplings x, and the same function with another, hidden phase "
        "is the answer y. Here is one query of the third task, asked before the task begins, while its examples "
        "arrive, and at the end of the stream.</p>"
        "<p><i class='key first'></i>truth<i class=key></i>answer<i class='key wide'></i>where it expects 95 % of the truth</p>"
        f"<div class='panels narrow'>{panels}</div>"
    )


def _panel(truth: list[float], answer: Answer, reach: float) -> str:
    low = [m - 1.96 * s for m, s in zip(answer.mean, answer.spread, strict=True)]
    high = [m + 1.96 * s for m, s in zip(answer.mean, answer.spread, strict=True)]
    band = _path(low, reach) + _path(high[::-1], reach, backwards=True).replace("M", "L", 1) + "Z"
    return (
        f'<svg class=curve viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="truth and answer, {escape(answer.when)}">'
        f'<path class=band d="{band}"/><path class=truth d="{_path(truth, reach)}"/>'
        f'<path class=answer d="{_path(answer.mean, reach)}"/></svg>'
    )


def _path(values: Sequence[float], reach: float, *, backwards: bool = False) -> str:
    """A curve through the whole panel; zero is in the middle, and what is out of reach stays at the rim."""
    points = []
    for i, value in enumerate(values):
        x = 10 + (WIDE - 20) * i / (len(values) - 1)
        y = HIGH / 2 * (1 - min(max(value / reach, -1), 1))
        points.append(f"{WIDE - x if backwards else x:.1f} {y:.1f}")
    return "M" + "L".join(points)


def _errors(errors: list[list[float]]) -> str:
    tasks = len(errors[0])
    head = "".join(f"<th scope=col>{'before' if t == 0 else f'+ task {t}'}</th>" for t in range(tasks + 1))
    body = "".join(
        f"<tr><th scope=row>task {task + 1}</th>"
        + "".join(_heat(row[task], new=learned == task + 1) for learned, row in enumerate(errors))
        + "</tr>"
        for task in range(tasks)
    )
    worst = max(errors[-1])
    before = min(errors[0])
    return (
        "<p>The squared error of each task's queries (rows) as one task after another is learned (columns). A frame marks the "
        "moment when a task is learned. What comes later costs it little, since all share one belief of fixed size: "
        f"before the stream no error is below {names.number(before)}, after it none is above "
        f"{worst:.4f}.</p><div class=scroll><table class=heat><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _heat(error: float, *, new: bool) -> str:
    known = round(100 * min(max(-log10(max(error, 1e-9)) / 3.5, 0.04), 1.0))
    ink = "var(--page)" if known > 55 else "var(--ink)"
    style = f"background:color-mix(in srgb,var(--sbmcl) {known}%,var(--raised));color:{ink}"
    return f'<td{" class=new" if new else ""}><span style="{style}">{names.number(error, 2)}</span></td>'


def _promises(promises: dict[str, float]) -> str:
    rows = "".join(
        f"<tr><th scope=row>{escape(ways[0].upper() + ways[1:])}</th><td>{difference:.0e}</td></tr>"
        for ways, difference in promises.items()
    )
    return (
        "<p>Beliefs of this family are sums of what each example contributes. So many ways lead to the same knowledge, and an "
        "example can be taken out again. Measured on the stream above in double precision: the largest difference between "
        "the answers of two ways, relative to the largest answer.</p>"
        f"<table><thead><tr><th>Learned</th><th>Difference</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _results(rows: Sequence[Row], paper: dict[str, dict[int, float]], figures: dict[str, str]) -> str:
    columns = [row.tasks for row in rows]
    head = "".join(f"<th scope=col>{names.plural(k, 'task')}</th>" for k in columns)
    mine = "".join(f"<td>{names.number(row.value, 4)}</td>" for row in rows)
    theirs = "".join(
        f"<tr><th scope=row>{names.method(method)} <span class=note>paper</span></th>"
        + "".join(f"<td>{values[k]:.3f}</td>" if k in values else "<td class=empty>–</td>" for k in columns)
        + "</tr>"
        for method, values in paper.items()
    )
    panels = "".join(_figure(group, figures) for group in ("More tasks", "Memory"))
    return (
        f"<p>Mean squared error at the end of streams that get longer, over {rows[0].episodes} streams each; every task brings "
        f"10 examples. The belief is {names.size(rows[-1].state_bytes)} however long the stream is. The published model was "
        f"trained for 50,000 steps, this one for {rows[0].steps:,}.</p><div class=panels>{panels}</div>"
        f"<div class=scroll><table><thead><tr><th></th>{head}</tr></thead><tbody><tr class=mine><th scope=row>This run</th>"
        f"{mine}</tr>{theirs}</tbody></table></div>"
    )


def _training(facts: dict[str, str], figures: dict[str, str]) -> str:
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl>{listed}</dl><div class=panels>{_figure('Training', figures)}</div>"


def _figure(group: str, figures: dict[str, str]) -> str:
    """A panel of the report, if there are points enough to draw one."""
    return f"<figure><figcaption>{group}</figcaption>{figures[group]}</figure>" if group in figures else ""


def _characters(seen: Characters, rows: Sequence[Row]) -> str:
    shots, queries = seen.drawn.shape[1], seen.asked.shape[1]
    end = seen.right[-1]
    body = "".join(
        f"<tr><td>{_pictures(seen.drawn[c])}</td><td>{_pictures(seen.asked[c], [to == c for to in seen.taken_for[c]])}</td>"
        f"<td>{seen.right[c][c]:.0%}</td><td>{end[c]:.0%}</td></tr>"
        for c in range(len(end))
    )
    longer = "; ".join(f"{names.number(row.value)} for {names.plural(row.tasks, 'character')}" for row in rows)
    return (
        f"<p>No one taught the network these characters: a program invented them. Each was learned from {shots} drawings, one "
        f"character after another, without a second look at an earlier one; then {queries} other drawings of each were asked "
        "about. A wrong answer has a frame. Shares are of right answers among all characters learned by then: more "
        "characters are more to confuse, but nothing learned is lost.</p>"
        "<div class=scroll><table class=drawn><thead><tr><th>Learned from</th><th>Asked about</th><th>Right when learned</th>"
        f"<th>at the end</th></tr></thead><tbody>{body}</tbody></table></div>"
        "<p>It also knows what it does not know: with half of the characters learned, one that is still to come looks newer "
        f"to it than a learned one in {seen.novel[len(seen.novel) // 2]:.0%} of pairs. Share of wrong answers over "
        f"{rows[0].episodes} streams each: {longer}.</p>"
    )


def _pictures(ink: Float[Tensor, "n h w"], right: Sequence[bool] | None = None) -> str:
    marks = [True] * len(ink) if right is None else right
    return "".join(
        f'<img{"" if good else " class=wrong"} alt="{"a drawing" if good else "a drawing, mistaken"}" src="{_png(drawing)}">'
        for drawing, good in zip(ink, marks, strict=True)
    )


def _png(ink: Float[Tensor, "h w"]) -> str:
    """Black ink on nothing, so that the page's own paper shows, as a data URI."""
    file, alpha = BytesIO(), Image.fromarray((255 * ink).round().byte().numpy())
    Image.merge("LA", (Image.new("L", alpha.size), alpha)).save(file, "png", optimize=True)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()
