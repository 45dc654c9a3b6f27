"""What sources share: bad records counted or refused, pictures decoded to one shape, work spread over processes.

A source is a function that yields (class, examples): arrays of uint8 pictures (n, channels, height, width) or of float32
vectors (n, d). It never holds a whole data set, never unpacks to disk and never believes a size that a file declares.
"""

import io
import itertools
import lzma
import os
import warnings
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image, UnidentifiedImageError

Classed = Iterator[tuple[str, Shaped[np.ndarray, "n *item"]]]
Fit = Literal["stretch", "pad"]
MOST_PIXELS = 50_000_000
"""Of one picture before it is resized; a larger one is refused before it is decoded."""

BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Readable(Protocol):
    """An open file of bytes, in an archive or not."""

    def read(self, n: int = -1, /) -> bytes: ...

    def readline(self, n: int = -1, /) -> bytes: ...


@dataclass
class Problems:
    """Records that cannot be used: skipped and counted, or, where `strict`, refused."""

    strict: bool = False
    kept: int = 5
    """Messages kept of each kind."""
    counts: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def add(self, where: str, kind: str, detail: str = "") -> None:
        """`where` is a file and a place in it; `kind`, what is wrong with it, ends that sentence and is counted."""
        message = f"{where} {kind}" + (f" ({detail})" if detail else "")
        if self.strict:
            raise ValueError(f"{message}. Leave out --strict to skip such records")
        self.counts[kind] += 1
        if self.counts[kind] <= self.kept:
            self.messages.append(message)

    @property
    def total(self) -> int:
        return self.counts.total()


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive whose members are read where they lie; whatever goes wrong in it is a ValueError that names it."""
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except (*BROKEN_ZIP, OSError) as error:
            raise ValueError(f"{path} is no whole zip file ({error}); delete it and make or fetch it again") from error


def decode(
    data: bytes, size: int, channels: int, *, fit: Fit = "stretch", filter: Image.Resampling = Image.Resampling.BILINEAR
) -> UInt8[np.ndarray, "c h w"]:
    """A picture of any size, mode and format as a square one, on white where it is transparent; a ValueError if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a bomb is refused below, odd metadata does not matter
            image = Image.open(io.BytesIO(data))
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it says it has {image.width} x {image.height} pixels")
            image.load()
        image = flattened(image, channels)
    except UnidentifiedImageError as error:
        raise ValueError("no picture of a known format") from error
    except Exception as error:  # decoders raise whatever they like
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return resized(image, size, fit, filter)


def flattened(image: Image.Image, channels: int) -> Image.Image:
    """Grey or RGB, eight bits, transparency put on white."""
    if image.mode.startswith("I;16") or image.mode == "I":
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")


def resized(image: Image.Image, size: int, fit: Fit, filter: Image.Resampling) -> UInt8[np.ndarray, "c h w"]:
    if fit == "stretch":
        image = image.resize((size, size), filter)
    else:
        longer = max(image.size)
        wide, high = (max(1, round(size * side / longer)) for side in image.size)
        paper = Image.new(image.mode, (size, size), "white")
        paper.paste(image.resize((wide, high), filter), ((size - wide) // 2, (size - high) // 2))
        image = paper
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def in_parallel(function: Callable[[T], R], items: Iterable[T], workers: int | None = None) -> Iterator[R]:
    """`map` over processes, in order, with no more items under way than keep the workers busy."""
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield from map(function, items)
        return
    items = iter(items)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting: deque[Future[R]] = deque(pool.submit(function, item) for item in itertools.islice(items, 2 * workers))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(function, item) for item in itertools.islice(items, 1))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def batched(items: Iterable[T], n: int) -> Iterator[list[T]]:
    items = iter(items)
    while batch := list(itertools.islice(items, n)):
        yield batch


def grouped(labels: list[str], items: Shaped[np.ndarray, "n *item"]) -> Classed:
    """A mixed batch, class by class."""
    place: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        place.setdefault(label, []).append(row)
    for label, rows in place.items():
        yield label, items[rows]
