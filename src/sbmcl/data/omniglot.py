"""Omniglot: 1,623 hand-written characters of 50 alphabets, 20 drawings each (SPEC 4.1; Lake et al. 2015).

The two official zips are downloaded (with a progress bar, checked by MD5) or taken from a local folder, and turned once into
one store a split: 32 x 32, bilinear, 8-bit grey.
"""

import io
import os
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image

from sbmcl.data.store import Store, cache_folder

Split = Literal["background", "evaluation"]
SIZE = 32
URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
MD5 = {"background": "68d2efa1b9178cc56df9314c21c6e718", "evaluation": "6b91aef0f799c5bb55b94e3f2daec811"}


def store_path(split: Split) -> Path:
    return cache_folder() / f"omniglot-{split}.safetensors"


def load(split: Split) -> Store:
    """The prepared store; made first if the official zips lie in $SBMCL_DATA/omniglot."""
    path = store_path(split)
    if path.exists():
        return Store.load(path)
    local = Path(os.environ.get("SBMCL_DATA", "data")) / "omniglot"
    if not (local / f"images_{split}.zip").exists():
        raise FileNotFoundError(
            f"Omniglot is not prepared yet ({path} is missing). Run 'sbmcl data prepare omniglot', which downloads 14 MB, "
            f"or 'sbmcl data prepare omniglot --source FOLDER' if you have its two official zips."
        )
    return prepare(split, local)


def prepare(split: Split, folder: Path | None = None) -> Store:
    """Build and keep the store of one split, from the zip in `folder` or from the official address."""
    archive = _download(split) if folder is None else folder / f"images_{split}.zip"
    if not archive.exists():
        raise FileNotFoundError(f"{archive} is missing; it is one of the two official Omniglot zips")
    store = read_zip(archive, f"omniglot-{split}")
    store.save(store_path(split))
    return store


def read_zip(archive: Path, name: str) -> Store:
    """Read `.../alphabet/character/drawing.png` members; nothing is ever unpacked to disk."""
    classes: dict[str, list[np.ndarray]] = {}
    try:
        with zipfile.ZipFile(archive) as file:
            for member in sorted(file.namelist()):
                if member.endswith(".png"):
                    alphabet, character = Path(member).parts[-3:-1]
                    classes.setdefault(f"{alphabet}/{character}", []).append(_read_image(file.read(member), member))
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{archive} is no whole zip file ({error}); delete it and fetch it again") from error
    if not classes:
        raise ValueError(f"{archive} has no alphabet/character/*.png members, so it is not an Omniglot archive")
    counts = [len(drawings) for drawings in classes.values()]
    images = torch.from_numpy(np.stack([image for drawings in classes.values() for image in drawings]))
    return Store(name, images.unsqueeze(1), torch.tensor([0, *counts]).cumsum(0), tuple(classes))


def _read_image(data: bytes, member: str) -> np.ndarray:
    try:
        image = Image.open(io.BytesIO(data)).convert("L")
        return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    except Exception as error:
        raise ValueError(f"the picture {member} cannot be read: {error}") from error


def _download(split: Split) -> Path:
    import pooch

    name = f"images_{split}.zip"
    found = pooch.retrieve(
        URL + name,
        known_hash=f"md5:{MD5[split]}",
        fname=name,
        path=cache_folder(),
        progressbar=_ProgressBar(),  # pyright: ignore[reportArgumentType]
    )
    return Path(found)


class _ProgressBar:
    """The few methods pooch asks of a progress bar, drawn by rich."""

    total = 0.0

    def __init__(self) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(TextColumn("downloading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())

    def update(self, n: float) -> None:
        if not self._bar.tasks:
            self._bar.start()
            self._bar.add_task("", total=self.total)
        self._bar.advance(self._bar.task_ids[0], n)

    def reset(self) -> None:
        """pooch calls this to finish on exactly 100 %."""

    def close(self) -> None:
        self._bar.stop()
