"""The example that README readers copy from: it runs as it stands, fits on a page, and its learner learns."""

import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parent.parent / "examples" / "bring_your_own_model.py"


def test_a_model_of_ones_own_learns_from_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    runpy.run_path(str(EXAMPLE))
    errors = [float(error) for error in re.findall(r"error ([\d.]+)", capsys.readouterr().out)]
    assert len(errors) == 20
    assert errors[-1] < 0.05 < 0.1 < errors[0]


def test_it_fits_on_a_page() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 40
