"""A folder of pictures: every folder that holds pictures is a class, at any depth, as in `alphabet/character/drawing.png`."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from sbmcl.data.reading import Classed, Fit, Problems, decode, in_parallel

Read = tuple[str, list[np.ndarray], list[tuple[str, str]]]


def read(
    folder: Path, problems: Problems, *, size: int = 32, channels: int | None = None, fit: Fit = "stretch"
) -> Classed:
    """Class by class, in the order of their names, which are paths below `folder`.

    `channels` None is 1 where the first picture of every class is grey, else 3.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; name one that holds a folder of pictures for each class")
    found = list(_classes(folder))
    classes = [(name, files) for name, files in found if files]
    for name in (name for name, files in found if not files):
        problems.add(str(folder / name), "is an empty folder")
    if not classes:
        raise ValueError(
            f"{folder} holds no pictures in folders; put the pictures of each class into a folder of its own"
        )
    if channels is None:
        channels = 1 if all(_is_grey(files[0]) for _, files in classes) else 3
    one = partial(_read_class, size=size, channels=channels, fit=fit)
    for name, pictures, bad in in_parallel(one, classes):
        for file, reason in bad:
            problems.add(file, "cannot be read", reason)
        if pictures:
            yield name, np.stack(pictures)


def _classes(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Folders with files, and empty ones; what is hidden is left alone."""
    for path, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        shown = sorted(Path(path, file) for file in files if not file.startswith("."))
        if Path(path) != folder and (shown or not inner):
            yield Path(path).relative_to(folder).as_posix(), shown


def _read_class(named: tuple[str, list[Path]], *, size: int, channels: int, fit: Fit) -> Read:
    name, files = named
    pictures: list[np.ndarray] = []
    bad: list[tuple[str, str]] = []
    for file in files:
        try:
            pictures.append(decode(file.read_bytes(), size, channels, fit=fit))
        except (ValueError, OSError) as error:
            bad.append((str(file), str(error)))
    return name, pictures, bad


def _is_grey(file: Path) -> bool:
    try:
        with Image.open(file) as image:
            return image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")
    except Exception:  # it will be counted when it is read
        return True
