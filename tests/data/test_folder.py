"""Folders of pictures: every mode and size, nested alphabets, and what cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sbmcl.data import folder
from sbmcl.data.reading import Problems, decode, in_parallel


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbmcl.data.reading.os.cpu_count", lambda: 1)


def save(path: Path, mode: str = "L", size: tuple[int, int] = (40, 30), value: int = 0, suffix: str = ".png") -> Path:
    path = path.with_suffix(suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).convert(mode).save(path)
    return path


def read(root: Path, problems: Problems | None = None, **options) -> dict[str, np.ndarray]:
    return dict(folder.read(root, problems or Problems(strict=True), **options))


def test_every_folder_of_pictures_is_a_class_at_any_depth(tmp_path: Path) -> None:
    for name, count in {"b": 2, "Latin/one": 3, "Latin/two": 1}.items():
        for i in range(count):
            save(tmp_path / name / str(i), value=10 * i)
    save(tmp_path / ".hidden" / "0")
    save(tmp_path / "b" / ".thumbnail")
    found = read(tmp_path, size=8)
    assert {name: len(pictures) for name, pictures in found.items()} == {"b": 2, "Latin/one": 3, "Latin/two": 1}
    assert found["Latin/one"].shape == (3, 1, 8, 8)
    assert found["Latin/one"][:, 0, 0, 0].tolist() == [0, 10, 20]


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("1", ".png"), ("L", ".jpg"), ("LA", ".png"), ("P", ".gif"), ("RGB", ".bmp"), ("RGBA", ".png"), ("CMYK", ".jpg")],
)
def test_every_mode_becomes_grey_or_rgb(tmp_path: Path, mode: str, suffix: str) -> None:
    path = save(tmp_path / "a", mode, suffix=suffix)
    for channels in (1, 3):
        picture = decode(path.read_bytes(), 16, channels)
        assert picture.shape == (channels, 16, 16)
        assert picture.dtype == np.uint8
        assert picture.max() <= 3


def test_sixteen_bits_keep_their_upper_eight(tmp_path: Path) -> None:
    Image.fromarray(np.full((9, 9), 0x80FF, np.uint16)).save(tmp_path / "deep.png")
    assert set(decode((tmp_path / "deep.png").read_bytes(), 9, 1).ravel().tolist()) == {0x80}


def test_transparency_is_white(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert decode((tmp_path / "clear.png").read_bytes(), 8, 3).min() == 255


def test_padding_keeps_the_shape(tmp_path: Path) -> None:
    data = save(tmp_path / "wide", size=(60, 20)).read_bytes()
    padded, stretched = decode(data, 30, 1, fit="pad"), decode(data, 30, 1)
    assert stretched.max() == 0
    assert np.flatnonzero((padded[0] == 0).all(1)).tolist() == list(range(10, 20))


def test_colours_are_kept_where_there_are_any(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0")
    assert read(tmp_path)["a"].shape[1] == 1
    save(tmp_path / "b" / "0", "RGB")
    assert read(tmp_path)["a"].shape[1] == 3
    assert read(tmp_path, channels=1)["b"].shape[1] == 1


def test_what_cannot_be_read_is_counted_or_refused(tmp_path: Path) -> None:
    good = save(tmp_path / "a" / "0")
    for name, data in {"cut.png": good.read_bytes()[:50], "empty.png": b"", "notes.txt": b"hello"}.items():
        (tmp_path / "a" / name).write_bytes(data)
    (tmp_path / "none").mkdir()
    problems = Problems()
    assert len(read(tmp_path, problems)["a"]) == 1
    assert problems.counts == {"cannot be read": 3, "is an empty folder": 1}
    assert any("cut.png cannot be read" in message for message in problems.messages)
    with pytest.raises(ValueError, match=r"none is an empty folder.*--strict"):
        read(tmp_path)


def test_a_picture_too_large_to_be_true_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = save(tmp_path / "large", size=(40, 30)).read_bytes()
    monkeypatch.setattr("sbmcl.data.reading.MOST_PIXELS", 1199)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("was decoded"))
    with pytest.raises(ValueError, match="40 x 30"):
        decode(data, 32, 1)


def test_folders_without_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        read(tmp_path / "nowhere")
    save(tmp_path / "loose")
    with pytest.raises(ValueError, match="folder of its own"):
        read(tmp_path)


def test_processes_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(in_parallel(abs, range(-5, 0), workers=2)) == [5, 4, 3, 2, 1]
