"""CASIA's `.gnt` files, written here by an independent writer, cut, bent and fuzzed."""

import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sbmcl.data import casia
from sbmcl.data.reading import Problems
from sbmcl.data.store import Store

Drawing = tuple[bytes, np.ndarray]


def gnt(drawings: list[Drawing]) -> bytes:
    """As the official description has it: little-endian, back to back."""
    out = bytearray()
    for tag, pixels in drawings:
        height, width = pixels.shape
        out += struct.pack("<I", 10 + width * height) + tag + struct.pack("<HH", width, height) + pixels.tobytes()
    return bytes(out)


def drawing(seed: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)


def tag(character: str) -> bytes:
    return character.encode("gbk").ljust(2, b"\0")


def test_records_of_any_size_come_back() -> None:
    sizes = [(32, 32), (64, 64), (1, 200), (200, 1), (7, 90), (255, 3)]
    characters = "啊一A，7丂"
    labels, pictures, bad = casia.parse(
        gnt([(tag(c), drawing(i, *size)) for i, (c, size) in enumerate(zip(characters, sizes, strict=True))])
    )
    assert labels == list(characters)
    assert pictures.shape == (6, 1, 32, 32)
    assert not bad
    assert np.array_equal(pictures[0, 0], drawing(0, 32, 32))
    halved = np.asarray(Image.fromarray(drawing(1, 64, 64)).resize((32, 32), Image.Resampling.BICUBIC))
    assert np.array_equal(pictures[1, 0], halved)


def test_a_drawing_keeps_its_shape_in_the_middle_of_white() -> None:
    _, pictures, _ = casia.parse(gnt([(tag("一"), np.zeros((16, 64), np.uint8))]))
    rows = np.flatnonzero((pictures[0, 0] == 0).all(1))
    assert rows.tolist() == list(range(12, 20))
    assert (np.delete(pictures[0, 0], rows, axis=0) == 255).all()


def test_a_single_byte_symbol_is_a_class_with_or_without_its_zero() -> None:
    assert casia.parse(gnt([(b"A\0", drawing(0, 4, 4))]))[0] == ["A"]


def test_bad_records_are_named_by_their_place() -> None:
    good = gnt([(tag("一"), drawing(0, 5, 5))])
    empty = struct.pack("<I2sHH", 10, tag("丁"), 0, 9)
    unknown = gnt([(b"\xff\xff", drawing(0, 2, 2))])
    labels, _, bad = casia.parse(good + empty + good + unknown + good)
    assert labels == ["一"] * 3
    assert [offset for offset, _ in bad] == [35, 80]
    assert "without pixels" in bad[0][1]
    assert "no GBK" in bad[1][1]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\x01\x02", "within a header"),
        (struct.pack("<I2sHH", 99, tag("一"), 5, 5), "does not fit"),
        (struct.pack("<I2sHH", 10 + 65535 * 65535, tag("一"), 65535, 65535), "beyond the file"),
        (gnt([(tag("一"), drawing(0, 5, 5))])[:-1], "beyond the file"),
    ],
)
def test_what_cannot_be_followed_ends_the_file(tail: bytes, reason: str) -> None:
    labels, _, bad = casia.parse(gnt([(tag("丁"), drawing(0, 3, 3))]) + tail)
    assert labels == ["丁"]
    assert bad[0][0] == 19
    assert reason in bad[0][1]


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 60), st.binary(max_size=4))
def test_noise_never_breaks_the_parser(noise: bytes, at: int, patch: bytes) -> None:
    whole = gnt([(tag("一"), drawing(0, 3, 4)), (tag("丁"), drawing(1, 2, 2))])
    for data in (noise, whole[:at] + patch + whole[at + len(patch) :], whole[:at]):
        labels, pictures, _ = casia.parse(data)
        assert len(labels) == len(pictures) <= len(data) // 11


@pytest.fixture
def archives(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten small archives of one writer each; one drawing is damaged."""
    monkeypatch.setattr("sbmcl.data.reading.os.cpu_count", lambda: 1)
    for number, name in enumerate(casia.ARCHIVES):
        drawings = [(tag(c), drawing(number, 8, 8)) for c in "一丁七万丈三"]
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            file.writestr(f"../../{number:03}.gnt", gnt(drawings) + (b"cut" if number == 3 else b""))
    return tmp_path


def test_ten_archives_make_one_store(archives: Path, cache: Path) -> None:
    problems = Problems()
    store = casia.prepare(archives, problems)
    assert store.class_names == tuple(sorted("一丁七万丈三"))
    assert store.counts.tolist() == [10] * 6
    assert problems.total == 1
    assert "byte 444 is cut within a header" in problems.messages[0]
    listed = (cache / "casia-test-classes.txt").read_text(encoding="utf-8").split()
    assert sorted(listed) == sorted(store.class_names)  # there are fewer than a thousand
    assert not list(archives.parent.glob("*.gnt"))
    with pytest.raises(ValueError, match="byte 444"):
        casia.prepare(archives, Problems(strict=True))
    assert Store.load(casia.store_path()).class_names == store.class_names


def test_missing_and_damaged_archives_are_named(archives: Path) -> None:
    whole = (archives / "Gnt1.1Test.zip").read_bytes()
    (archives / "Gnt1.1Test.zip").write_bytes(whole[:100])
    with pytest.raises(ValueError, match=r"Gnt1.1Test.zip is no whole zip"):
        casia.prepare(archives)
    (archives / "Gnt1.1Test.zip").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no Gnt1.1Test.zip"):
        casia.prepare(archives)
    with zipfile.ZipFile(archives / "Gnt1.1Test.zip", "w") as file:
        file.writestr("readme.txt", b"")
    with pytest.raises(ValueError, match="not a CASIA"):
        casia.prepare(archives)


def test_the_split_follows_from_the_names_alone() -> None:
    names = tuple(chr(0x4E00 + i) for i in range(50))
    train, test = casia.split(names, held_out=10)
    order = list(range(50))
    random.Random(0).shuffle(order)
    assert test == order[:10]
    assert sorted(train + test) == list(range(50))
    shuffled = tuple(random.Random(1).sample(names, 50))
    assert {shuffled[i] for i in casia.split(shuffled, held_out=10)[1]} == {names[i] for i in test}


def test_the_official_archives_are_ten() -> None:
    assert len(set(casia.ARCHIVES)) == 10
    assert {"Gnt1.0TrainPart3.zip", "Gnt1.0Test.zip", "Gnt1.1TrainPart2.zip", "Gnt1.2Test.zip"} < set(casia.ARCHIVES)
