"""The worked story runs as it stands, fits on a page, and ends as it says."""

import runpy
from pathlib import Path

import pytest

STORY = Path(__file__).parents[2] / "examples" / "two_machines_one_person_leaves.py"


def test_the_story_ends_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(STORY))
    told = capsys.readouterr().out
    assert "['cat' 'dog' 'eel'] and are right about 1.0" in told
    assert "['cat' 'eel'] - as if he had never been here: True" in told


def test_it_fits_on_a_page() -> None:
    assert len([line for line in STORY.read_text().splitlines() if line.strip()]) <= 25
