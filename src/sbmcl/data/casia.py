"""CASIA-HWDB 1.0 to 1.2: 3.9 million drawings of 7,356 Chinese characters and symbols (Liu et al. 2011).

The ten official zips hold `.gnt` files, one for each writer: records back to back, little-endian,

    uint32 bytes of the record = 10 + width * height,   two bytes of tag (GBK),   uint16 width,   uint16 height,   pixels

A drawing keeps its shape: the longer side becomes 32 and the rest is white. A class is a character, over all three databases.
"""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from sbmcl.data.download import fetch
from sbmcl.data.reading import Classed, Problems, grouped, in_parallel, opened_zip, resized
from sbmcl.data.store import Store, StoreWriter, cache_folder

URL = "http://www.nlpr.ia.ac.cn/databases/Download/Offline/CharData/"
ARCHIVES = tuple(
    f"Gnt{database}{part}.zip"
    for database, parts in (("1.0", 3), ("1.1", 2), ("1.2", 2))
    for part in (*(f"TrainPart{number}" for number in range(1, parts + 1)), "Test")
)
SIZE = 32
TEST_CLASSES = 1000
HEADER = struct.Struct("<I2sHH")
LARGEST = 1 << 29
"""Bytes of one `.gnt` file, whatever the archive says; the real ones have about 10 MB."""

Bad = list[tuple[int, str]]


def store_path() -> Path:
    return cache_folder() / "casia.safetensors"


def load() -> Store:
    if not store_path().exists():
        raise FileNotFoundError(
            f"CASIA-HWDB is not prepared yet ({store_path()} is missing). Run 'sbmcl data prepare casia', which downloads ten "
            f"archives and may take days, or 'sbmcl data prepare casia --from FOLDER' if you have them"
        )
    return Store.load(store_path())


def prepare(folder: Path | None = None, problems: Problems | None = None) -> Store:
    """Build and keep the store, from the zips in `folder` or from the official address; beside it, the meta-test classes."""
    if folder is None:
        folder = cache_folder() / "casia"
        for name in ARCHIVES:
            fetch(URL + name, folder / name)
    missing = [name for name in ARCHIVES if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(f"{folder} has no {', '.join(missing)}; CASIA-HWDB is all ten archives together")
    with StoreWriter(store_path(), "casia", order="name") as writer:
        for character, drawings in read([folder / name for name in ARCHIVES], problems or Problems()):
            writer.add(character, drawings)
    store = Store.load(store_path())
    test = split(store.class_names)[1]
    listing = "".join(f"{store.class_names[number]}\n" for number in test)
    store_path().with_name("casia-test-classes.txt").write_text(listing, encoding="utf-8")
    return store


def split(class_names: tuple[str, ...], held_out: int = TEST_CLASSES) -> tuple[list[int], list[int]]:
    """Meta-train and meta-test class numbers: the published shuffle, of classes in the order of their names (deviation D26)."""
    order = sorted(range(len(class_names)), key=lambda number: class_names[number])
    random.Random(0).shuffle(order)
    return order[held_out:], order[:held_out]


def read(archives: list[Path], problems: Problems) -> Classed:
    """The drawings of each character, writer by writer; `.gnt` files are read side by side by all processors."""
    for archive, member, (labels, drawings, bad) in in_parallel(_read_member, _members(archives)):
        for offset, reason in bad:
            problems.add(f"{archive}: {member}: byte {offset}", reason)
        if labels:
            yield from grouped(labels, drawings)


def _members(archives: list[Path]) -> Iterator[tuple[Path, str]]:
    for archive in archives:
        with opened_zip(archive) as file:
            names = sorted(name for name in file.namelist() if name.lower().endswith(".gnt"))
        if not names:
            raise ValueError(f"{archive} has no .gnt members, so it is not a CASIA-HWDB archive")
        yield from ((archive, name) for name in names)


def _read_member(place: tuple[Path, str]) -> tuple[Path, str, tuple[list[str], UInt8[np.ndarray, "n 1 h w"], Bad]]:
    archive, member = place
    with opened_zip(archive) as file, file.open(member) as gnt:
        data = gnt.read(LARGEST)
    return archive, member, parse(data)


def parse(data: bytes, size: int = SIZE) -> tuple[list[str], UInt8[np.ndarray, "n 1 h w"], Bad]:
    """Characters and drawings of one file, and where it was bad: a record without pixels is left out, and what follows a
    record that contradicts itself cannot be found any more, so reading ends there."""
    labels: list[str] = []
    drawings: list[np.ndarray] = []
    bad: Bad = []
    offset = 0
    while offset < len(data):
        if len(data) - offset < HEADER.size:
            bad.append((offset, "is cut within a header"))
            break
        length, tag, width, height = HEADER.unpack_from(data, offset)
        if length != HEADER.size + width * height:
            bad.append((offset, "starts a record whose length does not fit its width and height"))
            break
        if offset + length > len(data):
            bad.append((offset, "starts a record that ends beyond the file"))
            break
        label = _decoded(tag)
        if width == 0 or height == 0:
            bad.append((offset, "starts a record without pixels"))
        elif label is None:
            bad.append((offset, "starts a record whose tag is no GBK character"))
        else:
            pixels = np.frombuffer(data, np.uint8, width * height, offset + HEADER.size).reshape(height, width)
            labels.append(label)
            drawings.append(resized(Image.fromarray(pixels), size, "pad", Image.Resampling.BICUBIC))
        offset += length
    return labels, np.stack(drawings) if drawings else np.zeros((0, 1, size, size), np.uint8), bad


def _decoded(tag: bytes) -> str | None:
    """Single-byte symbols carry a zero behind them."""
    try:
        return tag.rstrip(b"\0").decode("gbk") or None
    except UnicodeDecodeError:
        return None
