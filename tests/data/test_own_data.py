"""From a folder of pictures to a trained and evaluated learner, with the commands of docs/data.md as they stand there."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sbmcl.cli import main
from sbmcl.data.episodes import rng_for
from sbmcl.data.glyphs import GlyphSource
from sbmcl.data.store import Store

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture
def drawings(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of 64 glyphs, 20 drawings each, two alphabets; the shell stands beside it."""
    pictures = GlyphSource().pictures(torch.arange(64), 20, rng_for(0, "test", 0))
    for number, examples in enumerate(((pictures + 1) * 127.5).byte().squeeze(2).numpy()):
        folder = tmp_path / "drawings" / "ab"[number % 2] / f"{number:02}"
        folder.mkdir(parents=True)
        for i, example in enumerate(examples):
            Image.fromarray(example).resize((50, 40)).save(folder / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sbmcl.data.reading.os.cpu_count", lambda: 1)
    return tmp_path


def commands() -> list[str]:
    """The three of the section, without the program's name."""
    section = DOCS.read_text().split("## My own data")[1].split("###")[0]
    found = re.findall(r"^    sbmcl (.*)$", section, re.MULTILINE)
    assert len(found) == 3
    return found


def test_three_commands_lead_from_a_folder_to_scores(drawings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = {
        "train": "--training.steps 2 --training.episodes 1 --training.validation-episodes 2",
        "evaluate": "--episodes 2",
    }
    for command in commands():
        verb = command.split()[0]
        assert main(shlex.split(f"{command} {small.get(verb, '')}")) == 0, command
    printed = capsys.readouterr()
    assert "64 classes, 1,280 examples" in printed.err
    assert "error" in printed.out


def test_a_store_is_described_and_verified(drawings: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "folder", "--from", "drawings", "--name", "mine", "--size", "16"]) == 0
    assert main(["data", "info", "mine", "--sheet", "sheet.png"]) == 0
    assert "1,280 pictures of 1 x 16 x 16 in 64 classes" in capsys.readouterr().out
    with Image.open("sheet.png") as sheet:
        assert sheet.size == (2 * 20 * 16, 2 * 12 * 16)
    assert main(["data", "verify", "mine"]) == 0
    path = cache / "mine.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["data", "verify", "mine"]) == 1
    assert "damaged" in capsys.readouterr().err


def test_vectors_are_prepared_too(drawings: Path, cache: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(90, 4)), np.arange(90) % 3
    np.savez("v.npz", x=x, y=y)
    assert main(["data", "prepare", "arrays", "--from", "v.npz"]) == 0
    assert Store.load(cache / "embeddings.safetensors").item_shape == (4,)
    assert main(["data", "info", "embeddings"]) == 0


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("folder", "--from PATH"),
        ("folder --from nowhere", "no folder"),
        ("folder --from drawings --fewest 21", "none of 64 classes has 21"),
        ("table --from drawings/none.csv", "no file"),
        ("casia --from drawings", "has no Gnt1.0TrainPart1.zip"),
    ],
)
def test_what_cannot_be_prepared_is_said_in_one_line(
    drawings: Path, cache: Path, capsys: pytest.CaptureFixture[str], command: str, reason: str
) -> None:
    assert main(["data", "prepare", *command.split()]) in (1, 2)
    assert reason in capsys.readouterr().err
    assert not list(cache.glob("*")) if cache.exists() else True
