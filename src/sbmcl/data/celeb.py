"""MS-Celeb-1M, aligned faces: 8.5 million pictures of 100 thousand people (Guo et al. 2016).

The publisher withdrew this data set in 2019, since the people in it had not been asked. It is not downloaded here; whoever has
the file `FaceImageCroppedWithAlignment.tsv`, plain or in a zip, should find out first whether its use is permitted. A line has
seven columns parted by tabs, of which the first (who) and the last (a picture in base64) are used. It is read as a stream.
"""

import binascii
import io
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from sbmcl.data.reading import (
    MOST_PIXELS,
    Classed,
    Problems,
    Readable,
    batched,
    flattened,
    grouped,
    in_parallel,
    opened_zip,
)
from sbmcl.data.store import Store, StoreWriter, cache_folder

SIZE = 32
COLUMNS = 7
FEWEST = 20
"""Pictures of a person who is kept."""
TEST_CLASSES = 1000
LONGEST = 1 << 24
"""Bytes of a line; what goes on longer is no record."""
LINES = 256
"""Decoded together by one process."""

Line = tuple[int, bytes]


def store_path() -> Path:
    return cache_folder() / "celeb.safetensors"


def load() -> Store:
    if not store_path().exists():
        raise FileNotFoundError(
            f"MS-Celeb-1M is not prepared yet ({store_path()} is missing). It was withdrawn by its publisher and is not "
            f"downloaded; if you have it and may use it: 'sbmcl data prepare celeb --from FaceImageCroppedWithAlignment.tsv'"
        )
    return Store.load(store_path())


def prepare(path: Path, problems: Problems | None = None) -> Store:
    """Build and keep the store of all people with at least twenty pictures, in order of appearance."""
    with StoreWriter(store_path(), "celeb", order="appearance", fewest=FEWEST) as writer:
        for person, faces in read(path, problems or Problems()):
            writer.add(person, faces)
    return Store.load(store_path())


def split(class_names: tuple[str, ...], held_out: int = TEST_CLASSES) -> tuple[list[int], list[int]]:
    """Meta-train and meta-test class numbers: people in order of appearance, shuffled with seed 0."""
    order = list(range(len(class_names)))
    random.Random(0).shuffle(order)
    return order[held_out:], order[:held_out]


def read(path: Path, problems: Problems) -> Classed:
    with _opened(path) as file:
        for people, faces, bad in in_parallel(decode_lines, batched(_lines(file, path, problems), LINES)):
            for number, reason in bad:
                problems.add(f"{path}: line {number}", reason)
            if people:
                yield from grouped(people, faces)


def decode_lines(lines: list[Line]) -> tuple[list[str], np.ndarray, list[tuple[int, str]]]:
    people: list[str] = []
    faces: list[np.ndarray] = []
    bad: list[tuple[int, str]] = []
    for number, line in lines:
        fields = line.rstrip(b"\r\n").split(b"\t")
        if len(fields) != COLUMNS or not fields[0]:
            bad.append((number, f"has not {COLUMNS} columns"))
            continue
        try:
            face = _face(binascii.a2b_base64(fields[-1]))
        except Exception:  # decoders raise whatever they like
            bad.append((number, "holds no picture that can be read"))
            continue
        people.append(fields[0].decode("utf-8", "replace"))
        faces.append(face)
    return people, np.stack(faces) if faces else np.zeros((0, 3, SIZE, SIZE), np.uint8), bad


def _face(data: bytes) -> np.ndarray:
    """As published: bilinear between the four nearest pixels, however much smaller the picture becomes."""
    image = Image.open(io.BytesIO(data))
    if image.width * image.height > MOST_PIXELS:
        raise ValueError("too many pixels")
    image = flattened(image, channels=3)
    to_source = (image.width / SIZE, 0, 0, 0, image.height / SIZE, 0)
    small = image.transform((SIZE, SIZE), Image.Transform.AFFINE, to_source, Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))


def _lines(file: Readable, path: Path, problems: Problems) -> Iterator[Line]:
    """Numbered lines; one that never ends is passed over piece by piece."""
    number = 0
    while line := file.readline(LONGEST):
        number += 1
        if len(line) < LONGEST or line.endswith(b"\n"):
            yield number, line
            continue
        while len(line) == LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST)
        problems.add(f"{path}: line {number}", f"is longer than {LONGEST:,} bytes")


@contextmanager
def _opened(path: Path) -> Iterator[Readable]:
    """The TSV itself, or the only one in a zip."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; name FaceImageCroppedWithAlignment.tsv, or a zip of it")
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            yield file
        return
    with opened_zip(path) as archive:
        tables = [name for name in archive.namelist() if name.lower().endswith(".tsv")]
        if len(tables) != 1:
            raise ValueError(f"{path} should hold one .tsv file, but has {len(tables)}")
        with archive.open(tables[0]) as file:
            yield file
