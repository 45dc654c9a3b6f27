"""MS-Celeb-1M's lines, written here by an independent writer, cut, bent and fuzzed."""

import base64
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sbmcl.data import celeb
from sbmcl.data.reading import Problems


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbmcl.data.reading.os.cpu_count", lambda: 1)


def encoded(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue())


def face(seed: int, size: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size + 3, 3), np.uint8)


def line(person: str, picture: bytes) -> bytes:
    return b"\t".join([person.encode(), b"1", b"http://a", b"http://b", b"F", b"AAAA", picture]) + b"\n"


def write(path: Path, people: dict[str, int], *more: bytes) -> Path:
    lines = [line(person, encoded(face(i))) for person, count in people.items() for i in range(count)]
    path.write_bytes(b"".join([*lines, *more]))
    return path


def test_people_with_twenty_pictures_are_kept_in_order_of_appearance(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "faces.tsv", {"m.z": 20, "m.few": 19, "m.a": 21})
    store = celeb.prepare(path)
    assert store.class_names == ("m.z", "m.a")
    assert store.counts.tolist() == [20, 21]
    assert store.items.shape == (41, 3, 32, 32)
    with zipfile.ZipFile(tmp_path / "faces.zip", "w") as file:
        file.write(path, "../../faces.tsv")
    assert celeb.prepare(tmp_path / "faces.zip").items.equal(store.items)


def test_pictures_are_bilinear_between_the_four_nearest_pixels() -> None:
    """Against the definition: output centres mapped into the picture, and nothing averaged beyond their neighbours."""
    pixels = face(3, 77)
    height, width = pixels.shape[:2]
    y, x = ((np.arange(32) + 0.5) * side / 32 - 0.5 for side in (height, width))
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    fy, fx = (y - y0)[:, None, None], (x - x0)[None, :, None]
    near = pixels.astype(float)
    rows = [near[y0 + i][:, x0] * (1 - fx) + near[y0 + i][:, x0 + 1] * fx for i in range(2)]
    expected = rows[0] * (1 - fy) + rows[1] * fy
    _, faces, bad = celeb.decode_lines([(1, line("m.a", encoded(pixels)))])
    assert not bad
    assert np.abs(faces[0].transpose(1, 2, 0) - expected).max() <= 1


def test_bad_lines_are_counted_and_named(tmp_path: Path) -> None:
    bad = [
        b"only\tthree\tfields\n",
        line("m.a", b"!!!not base64!!!"),
        line("m.a", base64.b64encode(b"no picture")),
        line("", encoded(face(0))),
        b"\n",
        line("m.a", encoded(face(0)))[:-200] + b"\n",
    ]
    path = write(tmp_path / "faces.tsv", {"m.a": 2}, *bad, line("m.b", encoded(face(1))))
    problems = Problems()
    assert [(person, len(faces)) for person, faces in celeb.read(path, problems)] == [("m.a", 2), ("m.b", 1)]
    assert problems.total == 6
    assert f"{path}: line 3 has not 7 columns" in problems.messages
    with pytest.raises(ValueError, match="line 3 has not 7 columns"):
        list(celeb.read(path, Problems(strict=True)))


def test_a_line_that_never_ends_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celeb, "LONGEST", 20_000)
    path = write(tmp_path / "faces.tsv", {"m.a": 1}, b"x" * 70_000 + b"\n", line("m.b", encoded(face(1))))
    problems = Problems()
    assert [person for person, _ in celeb.read(path, problems)] == ["m.a", "m.b"]
    assert problems.messages == [f"{path}: line 2 is longer than 20,000 bytes"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file"):
        list(celeb.read(tmp_path / "nothing.tsv", Problems()))
    with zipfile.ZipFile(tmp_path / "o.zip", "w") as file:
        file.writestr("readme.txt", b"")
    with pytest.raises(ValueError, match=r"should hold one \.tsv"):
        list(celeb.read(tmp_path / "o.zip", Problems()))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=5), st.integers(0, 300))
def test_noise_never_breaks_the_parser(lines: list[bytes], cut: int) -> None:
    whole = line("m.a", encoded(face(0, 4)))
    people, faces, bad = celeb.decode_lines(list(enumerate([*lines, whole[:cut], whole])))
    assert len(people) == len(faces) >= 1
    assert len(people) + len(bad) == len(lines) + 2
