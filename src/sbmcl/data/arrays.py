"""Arrays in an `.npz` file: `x` holds pictures (uint8) or vectors (floating), `y` their labels, of any type.

Pictures are (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 or 3 channels. Rows are read block by block.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sbmcl.data.reading import Classed, Fit, Problems, Readable, grouped, opened_zip, resized

ROWS = 4096
"""Read at a time."""


def read(path: Path, problems: Problems, *, size: int = 32, fit: Fit = "stretch", labelled: bool = True) -> Classed:
    """Vectors with numbers that are not finite are skipped. If not `labelled`, all rows are under no name, in order."""
    with opened_zip(path) as archive:
        labels = np.concatenate([block for _, block in _blocks(archive, path, "y")]) if labelled else None
        if labels is not None and labels.ndim != 1:
            raise ValueError(f"{path}: y has shape {labels.shape}, but should hold one label for each row of x")
        for first, block in _blocks(archive, path, "x", rows=None if labels is None else len(labels)):
            named = (
                [""] * len(block) if labels is None else [_text(label) for label in labels[first : first + len(block)]]
            )
            if block.dtype == np.uint8 and block.ndim in (3, 4):
                yield from grouped(named, _pictures(block, size, fit, path))
            elif block.dtype.kind in "fiu" and block.ndim == 2:
                vectors = block.astype(np.float32)
                good = np.isfinite(vectors).all(axis=1)
                for row in np.flatnonzero(~good):
                    problems.add(f"{path}: row {first + row} of x", "has numbers that are not finite")
                yield from grouped([named[row] for row in np.flatnonzero(good)], vectors[good])
            else:
                raise ValueError(
                    f"{path}: x is {block.dtype} of {block.ndim} dimensions, but should be pictures (uint8, 3 or 4 "
                    f"dimensions) or vectors (numbers, 2 dimensions)"
                )


def _pictures(block: np.ndarray, size: int, fit: Fit, path: Path) -> np.ndarray:
    if block.ndim == 3:
        block = block[..., None]
    elif block.shape[3] not in (1, 3) and block.shape[1] in (1, 3):
        block = block.transpose(0, 2, 3, 1)
    height, width, channels = block.shape[1:]
    if channels not in (1, 3):
        raise ValueError(f"{path}: x has pictures of shape {block.shape[1:]}, but there should be 1 or 3 channels")
    if (height, width) == (size, size):
        return np.ascontiguousarray(block.transpose(0, 3, 1, 2))
    images = (Image.fromarray(picture.squeeze(-1) if channels == 1 else picture) for picture in block)
    return np.stack([resized(image, size, fit, Image.Resampling.BILINEAR) for image in images])


def _text(label: Any) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _blocks(
    archive: zipfile.ZipFile, path: Path, name: str, rows: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """First row and rows of each block of one array; what the header declares is never allocated, only what arrives."""
    try:
        file = archive.open(f"{name}.npy")
    except KeyError:
        raise ValueError(f"{path} has no array {name!r}; save it with np.savez(path, x=..., y=...)") from None
    with file:
        shape, dtype = _header(file, f"{path}: {name}")
        if rows is not None and shape[0] != rows:
            raise ValueError(f"{path}: y has {rows} labels, but x has {shape[0]} rows")
        each = int(np.prod(shape[1:], dtype=object)) * dtype.itemsize
        if not 0 < each <= 1 << 28:
            raise ValueError(f"{path}: a row of {name} is said to take {each:,} bytes")
        count = max(1, min(ROWS, (64 << 20) // each))
        for first in range(0, shape[0], count):
            wanted = min(count, shape[0] - first)
            data = file.read(wanted * each)
            if len(data) < wanted * each:
                raise ValueError(f"{path}: {name} ends in row {first + len(data) // each} of {shape[0]}")
            yield first, np.frombuffer(data, dtype).reshape(wanted, *shape[1:])


def _header(file: Readable, what: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(file)
    except ValueError as error:
        raise ValueError(f"{what} is no array: {error}") from error
    if dtype.hasobject or not shape or min(shape) < 1 or (fortran and len(shape) > 1):
        raise ValueError(
            f"{what} is {dtype} of shape {shape}{' in Fortran order' if fortran else ''}; save a plain array of at least one "
            f"row, made by np.ascontiguousarray"
        )
    return shape, dtype
