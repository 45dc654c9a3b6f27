"""The page and its Markdown: complete, the same each time, self-contained, and legible."""

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from made_up import ROW, a_full_house

from sbmcl.report import write_report
from sbmcl.report.cells import Standing, answers, read_paper
from sbmcl.report.claims import LONGER, judge
from sbmcl.report.figures import Line, _figure
from sbmcl.report.summary import summarise
from sbmcl.report.tables import paper_tables, run_tables, time_table
from sbmcl.results import append

VOID = {"meta", "img", "br"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    append(folder / "rows.jsonl", a_full_house())
    (folder / "omniglot-completion.png").write_bytes(b"\x89PNG made up")
    return folder


@pytest.fixture(scope="module")
def written(results: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_report([results], tmp_path_factory.mktemp("report"))


def test_every_number_of_the_paper_stands_in_its_table() -> None:
    tables = paper_tables({})
    cells = [cell for table in tables for cell in table.cells.values()]
    assert len(tables) == 16
    assert sorted(str(cell.published) for cell in cells) == sorted(
        str(cell) for cell in read_paper() if cell.question.metric != "time"
    )
    assert {cell.standing for cell in cells} == {Standing.NOT_RUN}
    assert len(time_table([])) == 10


def test_rows_fill_the_cells_they_answer() -> None:
    rows = a_full_house()
    tables = paper_tables(answers(rows))
    standings = summarise(rows, tables).standings
    assert sum(standings.values()) == 547
    filled = {(cell.question, cell.entry) for table in tables for cell in table.cells.values() if cell.ours}
    assert {entry.method for question, entry in filled if entry and question.benchmark == "sine/regression"} == {
        "sbmcl", "oml", "oml-reptile", "tf", "linear-tf", "offline", "online"
    }  # fmt: skip


def test_benchmarks_of_our_own_and_methods_the_paper_has_not_are_tabled() -> None:
    found = answers(a_full_house())
    assert any("class offsets" in table.title for table in run_tables(found))
    classification = paper_tables(found)[0]
    assert classification.cells["PN", "Omniglot classification"].published is None


def test_bold_is_for_what_is_best_or_cannot_be_told_from_it() -> None:
    table = next(table for table in paper_tables(answers(a_full_house())) if "Sine" in table.title)
    bold = {row for (row, column), cell in table.cells.items() if column == "100 tasks" and cell.bold}
    assert bold == {"Offline"}, "the paper's best at 100 tasks, by far"
    bold = {row for (row, column), cell in table.cells.items() if column == "10 tasks" and cell.bold}
    assert {"TF", "SB-MCL"} >= bold > set()


def test_hours_are_scaled_to_the_published_steps() -> None:
    row = replace(ROW, benchmark="omniglot/classification", recipe="omniglot-gemcl", steps=1_000, train_seconds=720.0)
    hours = {(cell.task, cell.method): cell.ours for cell in time_table([row])}
    assert hours["classification", "sbmcl"] == pytest.approx(10.0)
    assert hours["vae", "sbmcl"] is None


def test_claims_are_judged_by_the_rows() -> None:
    claims = {(claim.text, claim.benchmark): claim for claim in judge(answers(a_full_house()))}
    assert claims[LONGER, "CASIA classification"].verdict == "holds"
    assert "500 tasks" in claims[LONGER, "CASIA classification"].evidence


def test_the_same_rows_give_the_same_bytes(results: Path, written: list[Path], tmp_path: Path) -> None:
    paths = f"[Path({str(results)!r})], Path({str(tmp_path)!r})"
    code = f"from pathlib import Path; from sbmcl.report import write_report; write_report({paths})"
    subprocess.run([sys.executable, "-c", code], check=True)
    for path in written:
        again = tmp_path / path.relative_to(written[0].parent)
        assert again.read_bytes() == path.read_bytes(), path.name


def test_the_page_needs_nothing_else(written: list[Path]) -> None:
    page = written[0].read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert "<script" not in page
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")


def test_the_page_is_well_formed_and_its_links_arrive(written: list[Path]) -> None:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.ids: list[str] = []
            self.links: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = dict(attrs)
            self.ids += [values["id"]] if values.get("id") else []
            self.links += [str(values["href"])[1:]] if str(values.get("href", "")).startswith("#") else []
            if tag not in VOID:
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    reader = Reader()
    reader.feed(written[0].read_text())
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.links) <= set(reader.ids)


def test_no_text_is_smaller_than_twelve_pixels(written: list[Path]) -> None:
    sizes = [float(size) for size in re.findall(r"(?:font(?:-size)?:\s*)([\d.]+)px", written[0].read_text())]
    assert sizes
    assert min(sizes) >= 12


def test_figures_take_their_colours_from_the_readers_scheme(written: list[Path]) -> None:
    figures = [path for path in written if path.suffix == ".svg"]
    assert len(figures) > 8
    for path in figures:
        text = path.read_text()
        ET.fromstring(text)
        assert "prefers-color-scheme" in text
        assert not re.search(r"(?:stroke|fill): #(?!000000\b)", text), path.name


def test_likelihoods_below_zero_are_drawn_too() -> None:
    line = Line("sbmcl", [(10, -2.0), (20, 5.0), (50, 100.0)])
    drawn = _figure("Calibration", "Sine", [line], "Tasks", "nats", log_x=True)
    assert ">0<" in drawn.svg, "an axis that has a zero"


def test_markdown_shows_figures_that_are_there(written: list[Path]) -> None:
    text = written[1].read_text()
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all((written[1].parent / picture).exists() for picture in pictures)
    assert "not run" in text


def test_a_report_of_nothing_is_the_paper_alone(tmp_path: Path) -> None:
    empty = tmp_path / "results"
    empty.mkdir()
    page = write_report([empty], tmp_path / "report")[0].read_text()
    assert "547 not run" in page


def test_what_a_row_says_is_never_markup(tmp_path: Path) -> None:
    append(tmp_path / "rows.jsonl", [replace(ROW, recipe="<script>alert(1)</script>", hardware="a & b <i>")])
    page = write_report([tmp_path / "rows.jsonl"], tmp_path / "report")[0].read_text()
    assert "<script" not in page
    assert "a &amp; b" in page
