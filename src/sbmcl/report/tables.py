"""The tables of the report as plain data: what stands in which row and column, and what can be said of it.

It may know cells and significance; HTML and Markdown are made from it elsewhere, so that both say the same.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sbmcl.report import names
from sbmcl.report.cells import (
    MAIN_METRIC,
    PUBLISHED_STEPS,
    UNTRAINED,
    Answers,
    Entry,
    Measured,
    Published,
    Question,
    Setting,
    Standing,
    published_recipe,
    read_paper,
    standing,
    standing_entries,
    trained_as_published,
)
from sbmcl.report.significance import not_worse_than_best
from sbmcl.results import CURVES, Row


@dataclass(frozen=True)
class Cell:
    """One place of a table: the paper's value, ours, or both."""

    row: str
    column: str
    question: Question
    published: Published | None = None
    entry: Entry | None = None
    ours: Measured | None = None
    bold: bool = False  # the best of its column or not to be told from it, by a test

    @property
    def standing(self) -> Standing | None:
        """None where the paper has no such cell."""
        return None if self.published is None else standing(self.published, self.entry, self.ours)

    @property
    def distance(self) -> float | None:
        return None if self.published is None or self.ours is None else self.published.distance(self.ours)

    @property
    def command(self) -> str:
        """What makes this cell."""
        method = self.entry.method if self.entry else self.published.method if self.published else "sbmcl"
        recipe = self.entry.recipe if self.entry else published_recipe(self.question.benchmark, method)
        seed = self.ours.rows[0].seed if self.ours else 0
        budget = f" --budget {self.entry.budget}" if self.entry and self.entry.budget else ""
        axis = "shots" if self.question.shots != 10 else "tasks"
        options = f" --{axis} {getattr(self.question, axis)}"
        if method.endswith("-map"):
            options += " --map"
        if self.question.meta_test not in (None, self.question.meta_train):
            options += f" --on {self.question.meta_test}"
        return f"sbmcl train {recipe}{budget} --seed {seed} && sbmcl evaluate runs/{recipe}-{seed}{options}"


@dataclass(frozen=True)
class Table:
    title: str
    about: str
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], Cell] = field(repr=False)  # by row and column

    @property
    def anchor(self) -> str:
        return names.anchor(self.title)

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def standings(self) -> list[Standing]:
        return [cell.standing for cell in self.cells.values() if cell.standing is not None]


@dataclass(frozen=True)
class Hours:
    """A cell of the paper's time table, beside what the steps of our runs add up to."""

    task: str
    method: str
    theirs: float
    ours: float | None
    recipe: str
    hardware: str


def paper_tables(found: Answers) -> list[Table]:
    """Every table of scores in the paper, in its order, with our rows where they are."""
    by_table = defaultdict(list)
    for published in read_paper():
        if published.question.metric != "time":
            by_table[published.table].append(published)
    chosen = standing_entries(found)
    return [_paper_table(name, cells, found, chosen) for name, cells in by_table.items()]


def _paper_table(name: str, published: list[Published], found: Answers, chosen: dict[Setting, Entry]) -> Table:
    column_of = names.column_namer(name)
    questions = dict.fromkeys(cell.question for cell in published)
    theirs = {(cell.method, cell.question): cell for cell in published}
    cells = {}
    for method, label in names.METHODS.items():
        for question in questions:
            cell = theirs.get((method, question))
            entry = chosen.get((question.benchmark, method, question.meta_train))
            ours = found.get(question, {}).get(entry) if entry else None
            if cell or ours:
                place = (label, column_of(question))
                cells[place] = Cell(*place, question, cell, entry if ours else None, ours)
    columns = tuple(dict.fromkeys(map(column_of, questions)))
    return Table(*names.PAPER_TABLES[name], columns, with_bold(cells))


def run_tables(found: Answers) -> list[Table]:
    """Every run, variants and benchmarks of our own included: more tasks and more shots, in the benchmark's own metric."""
    by_benchmark = defaultdict(list)
    for question in sorted(found, key=str):
        if question.metric == MAIN_METRIC.get(question.task):
            by_benchmark[question.benchmark, question.meta_train, question.meta_test].append(question)
    tables = []
    for asked in by_benchmark.values():
        tables.append(_run_table([q for q in asked if q.shots == 10], "tasks", found))
        tables.append(_run_table([q for q in asked if q.tasks == 10], "shots", found))
    return [table for table in tables if len(table.columns) > 1 or (table.columns and "tasks" in table.title)]


def _run_table(asked: list[Question], axis: str, found: Answers) -> Table:
    asked = sorted(asked, key=lambda question: getattr(question, axis))
    entries = sorted({entry for question in asked for entry in found[question]}, key=_by_method)
    cells = {}
    for entry in entries:
        for question in asked:
            if entry in found[question]:
                place = (run_name(entry), names.plural(getattr(question, axis), axis[:-1]))
                cells[place] = Cell(*place, question, None, entry, found[question][entry])
    columns = tuple(dict.fromkeys(column for _, column in cells))
    title = f"{where(*asked[0][:3])}: more {axis}" if asked else ""
    about = f"{names.metric(asked[0].metric).capitalize()}; every run, variants included." if asked else ""
    return Table(title, about, columns, with_bold(cells))


def measure_tables(found: Answers) -> list[Table]:
    """What else was measured at 10 tasks, 10 shots, a row a run and a column a measure."""
    by_benchmark = defaultdict(list)
    for question in sorted(found, key=str):
        side = question.metric not in CURVES and question.metric != MAIN_METRIC.get(question.task)
        if side and (question.tasks, question.shots) == (10, 10):
            by_benchmark[question.benchmark, question.meta_train, question.meta_test].append(question)
    tables = []
    for asked in by_benchmark.values():
        cells = {}
        for entry in sorted({entry for question in asked for entry in found[question]}, key=_by_method):
            for question in asked:
                if entry in found[question]:
                    place = (run_name(entry), names.metric(question.metric))
                    cells[place] = Cell(*place, question, None, entry, found[question][entry])
        columns = tuple(names.metric(question.metric) for question in asked)
        title = f"{where(*asked[0][:3])}: other measures"
        tables.append(Table(title, "At 10 tasks, 10 shots.", columns, cells))
    return tables


def time_table(rows: Iterable[Row]) -> list[Hours]:
    """Hours of 50,000 steps. The paper names no data set, so any may stand in; the one with the most steps measured does."""
    runs: dict[tuple[str, str], dict[tuple[int, str, str], float]] = defaultdict(dict)
    for row in rows:
        if row.steps and row.train_seconds and published_recipe(row.benchmark, row.method) == row.recipe:
            key = (row.steps, row.recipe, row.train_hardware)
            runs[row.benchmark.split("/")[-1], row.method][key] = row.train_seconds / row.steps * PUBLISHED_STEPS / 3600
    table = []
    for cell in read_paper():
        if cell.question.metric == "time":
            measured = runs[cell.question.task, cell.method]
            recipe, hardware, hours = published_recipe(cell.question.benchmark, cell.method), "", None
            if measured:
                best = max(measured)
                (_, recipe, hardware), hours = best, measured[best]
            table.append(Hours(cell.question.task, cell.method, cell.value, hours, recipe, hardware))
    return table


def with_bold(cells: dict[tuple[str, str], Cell]) -> dict[tuple[str, str], Cell]:
    """Mark what a test backs as best of its column: paired over the same episodes, Holm-corrected within the column."""
    columns: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells.values():
        if cell.ours is not None and cell.ours.scores is not None:
            columns[cell.column].append(cell)
    bold = set()
    for column in columns.values():
        scores = [cell.ours.scores for cell in column if cell.ours is not None and cell.ours.scores is not None]
        best = not_worse_than_best(scores)
        if not all(best):  # where nothing can be told apart, bold would say nothing
            bold |= {(cell.row, cell.column) for cell, is_best in zip(column, best, strict=True) if is_best}
    return {place: replace(cell, bold=place in bold) for place, cell in cells.items()}


def where(benchmark: str, meta_train: str | None, meta_test: str | None) -> str:
    """The benchmark in words, and the data set it was meta-tested on where that is another one."""
    title = names.benchmark(benchmark)
    if meta_test not in (None, meta_train):
        title += f", tested on {names.DATA.get(str(meta_test), meta_test)}"
    return title


def run_name(entry: Entry) -> str:
    budget = f", {entry.budget}" if entry.budget else ""
    return f"{names.method(entry.method)} ({entry.recipe}{budget})"


def budget(cell: Cell) -> str:
    """What our number was allowed, in words."""
    if cell.entry is None or cell.ours is None:
        return ""
    if cell.entry.method.removesuffix("-map") in UNTRAINED:
        return "learned from scratch"
    whole = trained_as_published(cell.question.benchmark, cell.entry, cell.ours.steps)
    steps = "training as published" if whole else f"{cell.ours.steps:,} of {PUBLISHED_STEPS:,} steps"
    return f"{steps}, {names.duration(cell.ours.minutes)}"


def _by_method(entry: Entry) -> tuple[int, str]:
    order = list(names.METHODS)
    return (order.index(entry.method) if entry.method in order else len(order), str(entry))
