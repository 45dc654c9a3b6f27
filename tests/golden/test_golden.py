"""The numbers of golden.json, which only a change of behaviour may change; `measure.py` says how."""

import json
from typing import Any

import pytest
from measure import FILE, losses, seeds, sines

GOLDEN: dict[str, Any] = json.loads(FILE.read_text())


def test_seeds() -> None:
    assert seeds() == GOLDEN["seeds"]


def test_sines() -> None:
    assert sines() == pytest.approx(GOLDEN["sines"], abs=1e-5)


@pytest.mark.parametrize("name", GOLDEN["losses"])
def test_losses(name: str) -> None:
    """Sums may be ordered differently on another machine, hence not to the last bit."""
    assert losses(name) == pytest.approx(GOLDEN["losses"][name], rel=1e-5)
