"""The report: rows of results in, one HTML page and the same as Markdown out.

This room stands alone: it knows rows and the paper's numbers, and no torch. The same rows give byte-identical files.

    significance  intervals and paired tests          summary    what it comes down to
    cells         our rows beside the paper's cells    claims     what the paper says in words, tested
    tables        cells in rows and columns            figures    panels as SVG
    names         how things are called and written    page, markdown    writing it out
"""

from pathlib import Path

from sbmcl.report import markdown, page
from sbmcl.report.cells import answers, read_paper
from sbmcl.report.claims import judge
from sbmcl.report.figures import draw, standalone
from sbmcl.report.summary import summarise
from sbmcl.report.tables import measure_tables, paper_tables, run_tables, time_table
from sbmcl.results import read

FIGURES = "figures"


def write_report(results: list[Path], out: Path) -> list[Path]:
    """Write `report.html`, `report.md` and the folder of its figures; returns what was written, the page first.

    `results` are files of rows, or folders of them; PNGs that lie in such a folder become the gallery.
    """
    rows = read(results)
    found, tables = answers(rows), None
    tables = paper_tables(found)
    figures = draw(found, read_paper())
    gallery = sorted({path for folder in results if folder.is_dir() for path in folder.rglob("*.png")} - _own(out))
    content = (
        summarise(rows, tables),
        judge(found),
        tables,
        time_table(rows),
        run_tables(found),
        measure_tables(found),
    )
    written = {
        out / "report.html": page.render(*content, figures, gallery).encode(),
        out / "report.md": markdown.render(*content, figures, gallery, FIGURES).encode(),
        **{out / FIGURES / f"{figure.name}.svg": standalone(figure).encode() for figure in figures},
        **{out / FIGURES / path.name: path.read_bytes() for path in gallery},
    }
    for path, content in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(written)


def _own(out: Path) -> set[Path]:
    """Pictures that an earlier report wrote, which are no results."""
    return set((out / FIGURES).glob("*.png"))
