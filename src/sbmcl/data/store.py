"""One file for one data set: all its examples sorted by class, memory-mapped, so that millions open in no time.

Knows arrays and class names, not where they came from: every source is an iterator of (class, examples) that fills a
`StoreWriter`. The file is safetensors, so anything else can read it too.
"""

import errno
import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import numpy as np
import torch
from jaxtyping import Int, Shaped
from safetensors import safe_open
from torch import Tensor

STORE_FORMAT = "sbmcl-store/2"
BLOCK = 64 << 20
"""Bytes that are written, or checked, at a time."""


def cache_folder() -> Path:
    """Where prepared stores are kept: $SBMCL_CACHE, or the user's cache folder."""
    return Path(os.environ.get("SBMCL_CACHE", Path.home() / ".cache" / "sbmcl"))


def named_store(name: str) -> Path:
    """The file of a store called so in the cache, or at this path."""
    path = Path(name)
    return path if path.suffix == ".safetensors" else cache_folder() / f"{name}.safetensors"


@dataclass(frozen=True)
class Store:
    """All examples of a data set, sorted by class: class `c` holds rows `starts[c]` to `starts[c + 1]`.

    An example is a picture (uint8, channels x height x width) or a vector (float32).
    """

    name: str
    items: Shaped[Tensor, "n *item"]
    starts: Int[Tensor, "k1"]
    class_names: tuple[str, ...]

    @property
    def item_shape(self) -> tuple[int, ...]:
        return tuple(self.items.shape[1:])

    @property
    def counts(self) -> Int[Tensor, "k"]:
        """Examples of each class."""
        return self.starts.diff()

    @classmethod
    def of(cls, name: str, parts: Iterable[tuple[str, Shaped[np.ndarray, "n *item"]]]) -> "Store":
        """From the examples of classes, in memory; what is large goes through a `StoreWriter`."""
        classes: dict[str, list[np.ndarray]] = {}
        for class_name, items in parts:
            classes.setdefault(class_name, []).append(items)
        if not classes:
            raise ValueError(f"there is nothing to put into {name}")
        every = {class_name: np.concatenate(classes[class_name]) for class_name in sorted(classes)}
        starts = torch.tensor([0, *map(len, every.values())]).cumsum(0)
        return cls(name, torch.from_numpy(np.concatenate(list(every.values()))), starts, tuple(every))

    def save(self, path: Path) -> None:
        with StoreWriter(path, self.name, order="appearance") as writer:
            for name, items in zip(self.class_names, self.items.split(self.counts.tolist()), strict=True):
                writer.add(name, items.numpy())

    @classmethod
    def load(cls, path: Path) -> "Store":
        """Memory-mapped: only what is drawn is ever read."""
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}; 'sbmcl data prepare SOURCE --name {path.stem}' makes it")
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                if header.get("format") != STORE_FORMAT:
                    raise ValueError(f"it says {header.get('format')!r} where {STORE_FORMAT!r} was expected")
                items, starts = file.get_tensor("items"), file.get_tensor("starts")
            store = cls(header["name"], items, starts, tuple(json.loads(header["classes"])))
            store._check()
        except Exception as error:
            raise ValueError(f"{path} is no store that this version reads: {error}. Prepare it again.") from error
        return store

    def _check(self) -> None:
        """That rows, classes and names fit together: a lookup must never fall outside."""
        pictures = self.items.dtype == torch.uint8 and self.items.dim() == 4
        if not pictures and not (self.items.dtype == torch.float32 and self.items.dim() == 2):
            raise ValueError(f"it holds {self.items.dtype} of shape {tuple(self.items.shape)}, not pictures or vectors")
        if self.starts.dtype != torch.int64 or len(self.starts) != len(self.class_names) + 1:
            raise ValueError(f"it has {len(self.class_names)} class names for {len(self.starts) - 1} classes")
        if int(self.starts[0]) != 0 or int(self.starts[-1]) != len(self.items) or bool((self.counts < 1).any()):
            raise ValueError("its classes do not cover its examples")


class StoreWriter:
    """Writes a store of any size, class by class or in any order, and never holds more than a block of it in memory.

    Use it as a context: leaving it normally puts the whole file in place, leaving it by an exception (a full disk, a stop)
    leaves nothing. Examples wait in a file beside the store until all are known, and are then sorted by class.
    `order` is that of the classes: by name, or of first appearance. Classes of less than `fewest` examples are left out.
    """

    def __init__(self, path: Path, name: str, *, order: Literal["name", "appearance"] = "name", fewest: int = 1):
        self.path, self.name, self.order, self.fewest = path, name, order, fewest
        self.left_out = 0  # classes
        self._numbers: dict[str, int] = {}
        self._labels = array("i")
        self._item: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        self._spool_path = path.with_name(f"{path.name}.{os.getpid()}.spool.part")
        self._part_path = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._spool: BinaryIO

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._spool = self._spool_path.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        try:
            with _explained(self.path):
                self._spool.close()
                if kind is None:
                    self._finish()
        finally:
            self._spool_path.unlink(missing_ok=True)
            self._part_path.unlink(missing_ok=True)

    def add(self, class_name: str, items: Shaped[np.ndarray, "n *item"]) -> None:
        """Some examples of one class, pictures as uint8 (channels, height, width) or vectors as float32."""
        item = (items.dtype, items.shape[1:])
        if self._item is None:
            self._item = item
        if item != self._item:
            raise ValueError(f"{class_name} has examples of {item}, but the first class has {self._item}")
        number = self._numbers.setdefault(class_name, len(self._numbers))
        self._labels.extend(array("i", [number]) * len(items))
        with _explained(self.path):
            self._spool.write(np.ascontiguousarray(items).data)

    def _finish(self) -> None:
        label = np.array(self._labels, np.int32)
        counts = np.bincount(label, minlength=len(self._numbers))
        kept = [name for name, number in self._numbers.items() if counts[number] >= self.fewest]
        self.left_out = len(self._numbers) - len(kept)
        if self._item is None or not kept:
            few = f", since none of {self.left_out} classes has {self.fewest} examples" if self.left_out else ""
            raise ValueError(f"there is nothing to put into {self.path}{few}")
        if self.order == "name":
            kept.sort()
        place = np.full(len(self._numbers), len(kept), np.int32)
        place[[self._numbers[name] for name in kept]] = np.arange(len(kept), dtype=np.int32)
        sizes = counts[[self._numbers[name] for name in kept]]
        rows = np.argsort(place[label], kind="stable")[: sizes.sum()]
        starts = np.concatenate([[0], sizes.cumsum()]).astype(np.int64)

        dtype, shape = self._item
        spool = np.memmap(self._spool_path, dtype, "r", shape=(len(label), *shape))
        with self._part_path.open("wb") as file:
            digest_at = _write_header(file, self.name, kept, starts, dtype, (len(rows), *shape))
            digest, step = hashlib.sha256(), max(1, BLOCK // max(1, spool[0].nbytes))
            for first in range(0, len(rows), step):
                block = np.ascontiguousarray(spool[rows[first : first + step]])
                digest.update(block.data)
                file.write(block.data)
            file.seek(digest_at)
            file.write(digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        self._part_path.replace(self.path)


def verify(path: Path) -> Store:
    """Open a store and compare every byte with the checksum it was written with; a ValueError where they differ."""
    store = Store.load(path)
    with safe_open(path, framework="pt") as file:
        expected = file.metadata()["sha256"]
    digest, step = hashlib.sha256(), max(1, BLOCK // max(1, store.items[0].nbytes))
    for block in store.items.split(step):
        digest.update(block.numpy().data)
    if digest.hexdigest() != expected:
        raise ValueError(f"{path} is damaged: its examples are not those it was written with. Prepare it again.")
    if store.items.is_floating_point() and not all(bool(block.isfinite().all()) for block in store.items.split(step)):
        raise ValueError(f"{path} holds vectors with numbers that are not finite")
    return store


def _write_header(
    file: BinaryIO,
    name: str,
    classes: list[str],
    starts: Int[np.ndarray, "k1"],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
) -> int:
    """All that goes before the examples; returns where their checksum has to be filled in once it is known."""
    blank = "0" * 64
    metadata = {"format": STORE_FORMAT, "name": name, "classes": json.dumps(classes), "sha256": blank}
    end = starts.nbytes + int(np.prod(shape)) * dtype.itemsize
    kind = {"uint8": "U8", "float32": "F32"}.get(dtype.name)
    if kind is None:
        raise ValueError(f"a store holds uint8 pictures or float32 vectors, but got {dtype}")
    header = {
        "__metadata__": metadata,
        "starts": {"dtype": "I64", "shape": list(starts.shape), "data_offsets": [0, starts.nbytes]},
        "items": {"dtype": kind, "shape": list(shape), "data_offsets": [starts.nbytes, end]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants its data aligned
    file.write(len(text).to_bytes(8, "little") + text + starts.tobytes())
    return 8 + text.index(f'"sha256": "{blank}'.encode()) + len('"sha256": "')


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """A full disk, said in a way that helps."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f"the disk is full, so nothing was written. Making a store takes twice its size in {path.parent}; free some "
            f"space, or set SBMCL_CACHE to a folder on a larger disk",
        ) from error
