"""What the pages say is so: their Python runs, their links lead somewhere, their commands exist."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sbmcl import demo
from sbmcl.cli.app import VERBS
from sbmcl.config import ALPaCA
from sbmcl.recipes import ALL
from sbmcl.runs import RunFolder
from sbmcl.train import train

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_in(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in ("extending", "deploy") for number in range(len(python_in(ROOT / f"docs/{page}.md")))],
)
def test_what_is_shown_runs(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(python_in(ROOT / f"docs/{page}.md")[number], {"__name__": "shown"})


def test_the_readme_s_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = replace(demo.sine_experiment(1), method=ALPaCA(width=8, hidden=8))
    train(tiny, RunFolder.create(Path("runs/demo"), tiny, torch.device("cpu")), torch.device("cpu"), show=False)
    (block,) = python_in(ROOT / "README.md")
    exec(block, {"__name__": "shown"})
    assert "tensor(" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_recipes_exist(page: Path) -> None:
    for line in re.findall(r"(?:^    |`)sbmcl (.*?)(?:`|$)", page.read_text(), flags=re.MULTILINE):
        verb, *rest = line.split()
        assert verb in VERBS or verb in ("--help", "VERB"), line
        if verb == "train" and rest and "/" not in rest[0]:
            assert rest[0] in ALL or rest[0].isupper(), line
