"""What every test may ask for: quiet threads, a cache of its own, and Omniglot where its two zips are to be had."""

import os
from pathlib import Path

import pytest
import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for prepared stores, so that a test that prepares one leaves nothing behind."""
    monkeypatch.setenv("SBMCL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def omniglot_zips() -> Path:
    """The folder of the two official zips."""
    data = os.environ.get("SBMCL_DATA")
    if data is None:
        pytest.skip("needs Omniglot: set SBMCL_DATA to a folder that has omniglot/images_background.zip")
    folder = Path(data) / "omniglot"
    for split in ("background", "evaluation"):
        if not (folder / f"images_{split}.zip").exists():
            pytest.skip(f"needs Omniglot: {folder} has no images_{split}.zip")
    return folder
