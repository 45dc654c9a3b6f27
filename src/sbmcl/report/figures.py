"""The figures of the report, as SVG text whose colours follow the page's light or dark scheme.

It may know cells and rows; the page only places what it gets. Each figure is one panel that stands alone: its own axes with
units, its own legend, no text under 12 px at the smallest width it is shown in. Methods differ by colour, marker and dash, so
that a grey print reads as well.
"""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import log10
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from sbmcl.report import names
from sbmcl.report.cells import MAIN_METRIC, Answers, Entry, Measured, Published, Question, Setting, drawn_entries
from sbmcl.report.tables import where
from sbmcl.results import AVERAGE, FINAL, LEARN_MS, LEARNED, QUERY_MS, RELIABILITY, STATE_BYTES, TRAINING

Place = tuple[str, str, str | None]  # benchmark, meta_train, meta_test
Points = tuple[tuple[float, float], ...]
LENGTH = "Examples learned"
WIDTH = 336  # px, and the narrowest screen that shows it whole
INK, RULE = "#101418", "#d0d4d8"  # stand for the page's own colours


@dataclass(frozen=True)
class Style:
    key: str  # in the SVG, replaced by the scheme's colour
    light: str
    dark: str
    marker: str
    dash: Any


STYLES = {
    "sbmcl": Style("#0000a1", "#0063b1", "#5eb3ff", "o", "-"),
    "sbmcl-map": Style("#0000a2", "#3d8fd1", "#a4d3ff", "x", (0, (1, 1))),
    "oml": Style("#0000a3", "#c44e00", "#ff9a57", "s", "--"),
    "oml-reptile": Style("#0000a4", "#9a7500", "#e5c04b", "D", "-."),
    "tf": Style("#0000a5", "#00805a", "#3ecf9f", "^", (0, (5, 1))),
    "linear-tf": Style("#0000a6", "#5b6f00", "#b7cc55", "v", (0, (3, 1, 1, 1, 1, 1))),
    "pn": Style("#0000a7", "#a83279", "#f089c2", "P", (0, (4, 2, 1, 2))),
    "offline": Style("#0000a8", "#4c545c", "#c3cad1", "<", ":"),
    "online": Style("#0000a9", "#7b848c", "#98a1a9", ">", (0, (1, 3))),
}
OTHER = Style("#0000aa", "#6d3fc0", "#b99cf2", "*", "-")


@dataclass(frozen=True)
class Line:
    """One method in one panel; `low` and `high` bound the points where that is known."""

    method: str
    points: list[tuple[float, float]]
    bounds: list[tuple[float, float]] | None = None
    faint: bool = False  # the paper's


@dataclass(frozen=True)
class Figure:
    name: str  # of its file
    group: str
    title: str
    svg: str = field(repr=False)


STREAM_NOTE = "Bars: 95 % intervals. Broad and faint: the paper."
GROUPS = {
    "More tasks": f"Score at the end of longer streams, 10 shots of each task. {STREAM_NOTE}",
    "More shots": f"Score with more examples of each of 10 tasks. {STREAM_NOTE}",
    "Training": "Score on validation classes, where some are kept, against minutes of meta-training on the hardware of the rows.",
    "Memory": "Bytes of the state that a method carries, against the examples it has learned.",
    "Time": "To learn one more example, and to answer one query, after streams of each length; on the hardware of the rows.",
    "Forgetting": "Score on each task right after it was learned, again at the end of the stream, and on the mean so far.",
    "Calibration": "How far predictive probabilities can be trusted: likelihood, calibration error, accuracy by confidence.",
}


def draw(found: Answers, paper: Iterable[Published]) -> list[Figure]:
    """Every figure that the rows have something for."""
    chosen, paper = drawn_entries(found), list(paper)
    figures = []
    for axis, other in (("tasks", "shots"), ("shots", "tasks")):
        figures += _against_stream(found, paper, chosen, axis, other)
    figures += _curves(found, chosen, TRAINING, "Training", "Minutes of meta-training", "{metric}")
    figures += _memory(found, chosen)
    figures += _curves(found, chosen, LEARN_MS, "Time", LENGTH, "Milliseconds", "to learn one more", log=True)
    figures += _curves(found, chosen, QUERY_MS, "Time", LENGTH, "Milliseconds", "to answer one query", log=True)
    tasks = "Task, in order of arrival"
    figures += _curves(found, chosen, LEARNED, "Forgetting", tasks, "{metric}", "right after learning")
    figures += _curves(found, chosen, FINAL, "Forgetting", tasks, "{metric}", "at the end")
    figures += _curves(found, chosen, AVERAGE, "Forgetting", "Tasks learned so far", "{metric}", "mean over them")
    for metric in ("nll", "ece"):
        figures += _side_metric(found, chosen, metric)
    figures += _curves(found, chosen, RELIABILITY, "Calibration", "Mean confidence", "accuracy", diagonal=True)
    return sorted(figures, key=lambda figure: (list(GROUPS).index(figure.group), figure.title.partition(":")[0]))


def _against_stream(
    found: Answers, paper: list[Published], chosen: dict[Setting, Entry], axis: str, other: str
) -> list[Figure]:
    lines: dict[Place, list[Line]] = defaultdict(list)
    for place, entry, at in _series(found, chosen, axis, other, lambda task: MAIN_METRIC.get(task)):
        points = [(x, ours.value) for x, ours in at.items()]
        lines[place].append(Line(entry.method, points, [_bounds(ours) for ours in at.values()]))
    theirs: dict[Place, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for cell in paper:
        question = cell.question
        if getattr(question, other) == 10 and question.metric == MAIN_METRIC.get(question.task):
            theirs[question[:3]][cell.method][float(getattr(question, axis))] = cell.value
    figures = []
    for place, ours in lines.items():
        if max(len(line.points) for line in ours) > 1:
            faint = [Line(m, sorted(at.items()), faint=True) for m, at in theirs[place].items() if len(at) > 1]
            title, metric = where(*place), MAIN_METRIC[place[0].split("/")[-1]]
            x = f"{axis.capitalize()} in the stream" if axis == "tasks" else "Shots of each task"
            figures.append(_figure(f"More {axis}", title, faint + ours, x, names.metric(metric), log_x=True))
    return figures


def _side_metric(found: Answers, chosen: dict[Setting, Entry], metric: str) -> list[Figure]:
    lines: dict[Place, list[Line]] = defaultdict(list)
    for place, entry, at in _series(found, chosen, "tasks", "shots", lambda task: metric):
        points = [(x, ours.value) for x, ours in at.items()]
        lines[place].append(Line(entry.method, points))
    return [
        _figure(
            "Calibration", where(*place), ours, "Tasks in the stream", names.metric(metric), log_x=True, stem=metric
        )
        for place, ours in lines.items()
        if max(len(line.points) for line in ours) > 1
    ]


def _memory(found: Answers, chosen: dict[Setting, Entry]) -> list[Figure]:
    """The state after every stream that was asked about, and after the long ones where their cost was measured."""
    sizes: dict[Place, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for place, entry, at in _series(found, chosen, "tasks", "shots", lambda task: MAIN_METRIC.get(task)):
        if not entry.method.endswith("-map"):
            sizes[place][entry.method] |= {
                10 * k: fmean(row.state_bytes for row in ours.rows) for k, ours in at.items()
            }
    for place, by_method in _curve_rows(found, chosen, STATE_BYTES).items():
        for method, points in by_method.items():
            sizes[place][method] |= points
    figures = []
    for place, by_method in sizes.items():
        lines = [Line(m, sorted((n, size) for n, size in at.items() if size)) for m, at in by_method.items()]
        lines = [line for line in lines if line.points]
        if lines and max(len(line.points) for line in lines) > 1:
            figures.append(_figure("Memory", where(*place), lines, LENGTH, "Bytes of state", log_x=True, log_y=True))
    return figures


def _curves(
    found: Answers,
    chosen: dict[Setting, Entry],
    metric: str,
    group: str,
    x: str,
    y: str,
    when: str = "",
    *,
    log: bool = False,
    diagonal: bool = False,
) -> list[Figure]:
    figures = []
    for place, by_method in _curve_rows(found, chosen, metric).items():
        lines = [Line(method, list(points)) for method, points in by_method.items()]
        title = f"{where(*place)}: {when}" if when else where(*place)
        label = y.format(metric=names.metric(MAIN_METRIC.get(place[0].split("/")[-1], "")))
        figures.append(_figure(group, title, lines, x, label, stem=metric, log_x=log, diagonal=diagonal))
    return figures


def _curve_rows(found: Answers, chosen: dict[Setting, Entry], metric: str) -> dict[Place, dict[str, Points]]:
    """Curves of the first seed, by place and method; of several settings the one nearest to 10 tasks, 10 shots."""
    curves: dict[Place, dict[str, Points]] = defaultdict(dict)
    nearest = sorted(found, key=lambda question: (abs(question.tasks - 10) + abs(question.shots - 10), str(question)))
    for question in (question for question in nearest if question.metric == metric):
        for entry, ours in found[question].items():
            if _stands(question, entry, chosen) and ours.rows[0].curve:
                curves[question[:3]].setdefault(entry.method, ours.rows[0].curve)
    return curves


def _series(
    found: Answers, chosen: dict[Setting, Entry], axis: str, other: str, metric_of: Callable[[str], str | None]
) -> Iterator[tuple[Place, Entry, dict[float, Measured]]]:
    """What each method that stands for itself in figures scored along an axis, the other held at 10."""
    series: dict[tuple[Place, Entry], dict[float, Measured]] = defaultdict(dict)
    for question, measured in found.items():
        if getattr(question, other) == 10 and question.metric == metric_of(question.task):
            for entry, ours in measured.items():
                if _stands(question, entry, chosen):
                    series[question[:3], entry][float(getattr(question, axis))] = ours
    for (place, entry), at in sorted(series.items(), key=str):
        yield place, entry, dict(sorted(at.items()))


def _stands(question: Question, entry: Entry, chosen: dict[Setting, Entry]) -> bool:
    return chosen.get((question.benchmark, entry.method, question.meta_train)) == entry


def _figure(
    group: str,
    title: str,
    lines: list[Line],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool | None = None,
    stem: str = "",
    diagonal: bool = False,
) -> Figure:
    """One panel. Unless said otherwise, a logarithmic y axis where values span more than a factor of ten, none below zero."""
    name = "-".join(filter(None, [names.anchor(group), stem, names.anchor(title)]))
    lines = sorted(lines, key=lambda line: _order(line.method))
    every = [value for line in lines for _, value in line.points]
    values = [value for value in every if value > 0]
    if log_y is None:
        log_y = not diagonal and bool(values) and min(every) >= 0 and max(values) > 10 * min(values)
    rows = (len({line.method for line in lines}) + 1) // 2
    inches = (WIDTH / 72, (250 + 19 * rows) / 72)
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 12,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with mpl.rc_context(settings):
        canvas = Canvas(figsize=inches)
        canvas.patch.set_visible(False)
        legend = 19 * rows / (250 + 19 * rows)
        axes = canvas.add_axes((0.185, legend + 0.185 * (1 - legend), 0.79, 0.785 * (1 - legend)))
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        axes.set_axisbelow(True)
        if diagonal:
            axes.plot([0, 1], [0, 1], color=RULE, linewidth=1.2)
        for line in lines:
            _draw(axes, line)
        _scale(axes, lines, log_x, log_y)
        axes.set_xlabel(x)
        axes.set_ylabel(y, labelpad=3)
        handles = {names.method(line.method): _handle(line.method) for line in lines}
        canvas.legend(
            handles.values(), handles.keys(), ncols=2, loc="lower center", frameon=False, borderpad=0, handlelength=3.2,
            labelspacing=0.35, borderaxespad=0.1,
        )  # fmt: skip
        file = io.StringIO()
        canvas.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": f"{group}: {title}"})
    return Figure(name, group, title, _cleaned(file.getvalue(), name))


def _draw(axes: Any, line: Line) -> None:
    style = STYLES.get(line.method, OTHER)
    xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
    if line.faint:
        axes.plot(xs, ys, color=style.key, linestyle=style.dash, linewidth=3, alpha=0.3, zorder=1.5)
        return
    marker = style.marker if len(xs) <= 20 else ""
    axes.plot(xs, ys, color=style.key, linestyle=style.dash, linewidth=1.6, marker=marker, markersize=5)
    if line.bounds:
        low, high = zip(*line.bounds, strict=True)
        axes.vlines(xs, low, high, color=style.key, linewidth=1.2)


def _handle(method: str) -> Any:
    style = STYLES.get(method, OTHER)
    return Line2D([], [], color=style.key, linestyle=style.dash, linewidth=1.6, marker=style.marker, markersize=5)


def _scale(axes: Any, lines: list[Line], log_x: bool, log_y: bool) -> None:
    if log_x:
        axes.set_xscale("log")
        ticks = sorted({x for line in lines for x, _ in line.points})
        ticks = [x for i, x in enumerate(ticks) if i == 0 or i == len(ticks) - 1 or log10(x / ticks[i - 1]) > 0.2]
        axes.set_xticks(ticks, [_short(x) for x in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="x", which="minor", length=0)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=all(x == int(x) for line in lines for x, _ in line.points)))
    if log_y:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        subs = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="y", which="minor", length=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    """As few characters as an axis has room for."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"


def _bounds(ours: Measured) -> tuple[float, float]:
    return ours.interval or (ours.value - ours.error, ours.value + ours.error)


def _order(method: str) -> int:
    order = list(STYLES)
    return order.index(method) if method in order else len(order)


def _cleaned(svg: str, name: str) -> str:
    """Without the XML prologue, sized in px, ids its own, and every colour a variable of the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'class="figure" role="img"', svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)([^")]+)', rf"\g<1>{name}-\2", svg)
    for key, variable in colour_variables():
        svg = svg.replace(key, f"var({variable})")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def colour_variables() -> list[tuple[str, str]]:
    methods = [(style.key, f"--{method}") for method, style in {**STYLES, "other": OTHER}.items()]
    return [(INK, "--ink"), (RULE, "--rule"), *methods]


def scheme() -> tuple[str, str]:
    """The CSS variables that figures use: light and dark."""
    pairs = {**STYLES, "other": OTHER}.items()
    light = "".join(f"--{method}:{style.light};" for method, style in pairs)
    dark = "".join(f"--{method}:{style.dark};" for method, style in pairs)
    return "--ink:#15191d;--rule:#dfe3e7;" + light, "--ink:#e6e9ec;--rule:#343b42;" + dark


def standalone(figure: Figure) -> str:
    """The figure as a file of its own that follows the reader's scheme."""
    light, dark = scheme()
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    return re.sub(r"(<svg[^>]*>)", lambda match: match.group(1) + style, figure.svg, count=1)
