"""Omniglot: 1,623 hand-written characters of 50 alphabets, 20 drawings each (Lake et al. 2015).

The two official zips are downloaded (checked by MD5) or taken from a local folder, and turned once into one store a split:
32 x 32, bilinear, 8-bit grey.
"""

import os
from pathlib import Path
from typing import Literal

from sbmcl.data.download import fetch
from sbmcl.data.reading import Classed, Problems, decode, opened_zip
from sbmcl.data.store import Store, cache_folder

Split = Literal["background", "evaluation"]
SPLITS: tuple[Split, ...] = ("background", "evaluation")
SIZE = 32
URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
MD5 = {"background": "68d2efa1b9178cc56df9314c21c6e718", "evaluation": "6b91aef0f799c5bb55b94e3f2daec811"}
LARGEST = 1 << 20
"""Bytes of one drawing, whatever the archive says; the real ones have less than a thousand."""


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
            f"or 'sbmcl data prepare omniglot --from FOLDER' if you have its two official zips."
        )
    return prepare(split, local)


def prepare(split: Split, folder: Path | None = None, problems: Problems | None = None) -> Store:
    """Build and keep the store of one split, from the zip in `folder` or from the official address."""
    name = f"images_{split}.zip"
    if folder is not None and not (folder / name).exists():
        raise FileNotFoundError(f"{folder / name} is missing; it is one of the two official Omniglot zips")
    archive = folder / name if folder is not None else fetch(URL + name, cache_folder() / name, md5=MD5[split])
    store = read_zip(archive, f"omniglot-{split}", problems)
    store.save(store_path(split))
    return store


def read_zip(archive: Path, name: str, problems: Problems | None = None) -> Store:
    """Read `.../alphabet/character/drawing.png` members; nothing is ever unpacked to disk."""
    return Store.of(name, _drawings(archive, problems or Problems(strict=True)))


def _drawings(archive: Path, problems: Problems) -> Classed:
    found = False
    with opened_zip(archive) as file:
        for member in sorted(file.namelist()):
            parts = member.split("/")
            if not member.endswith(".png") or len(parts) < 3:
                continue
            found = True
            with file.open(member) as drawing:
                data = drawing.read(LARGEST)
            try:
                picture = decode(data, SIZE, channels=1)
            except ValueError as error:
                problems.add(f"{archive}: {member}", "cannot be read", str(error))
            else:
                yield "/".join(parts[-3:-1]), picture[None]
    if not found:
        raise ValueError(f"{archive} has no alphabet/character/*.png members, so it is not an Omniglot archive")
