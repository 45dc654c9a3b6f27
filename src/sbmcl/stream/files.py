"""A learner in a folder, replaced atomically and read without trusting a byte of it.

    learner.json          what it is: format, belief, encoder, labels, sources; and which state is the current one
    state-3.safetensors   the prior and the sums; its checksum stands in learner.json
    journal-3.log         what was learned since then, where a journal is kept
    last.safetensors      the networks, where they are from a run
    lock                  held by the process that keeps the journal

A save writes the files of the next number, then learner.json, which makes them the current ones, then removes the old.
Formats are numbered; whatever was written by an older version is read for ever (`tests/stream/learner-1`).
"""

import fcntl
import hashlib
import json
import os
import re
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from sbmcl import __version__
from sbmcl.beliefs import Belief
from sbmcl.experiment import Experiment
from sbmcl.runs import RunFolder, sync_folder, write_atomically
from sbmcl.stream.encoder import Encoder, Network, Origin, Scale, Shapes
from sbmcl.stream.journal import Journal, records
from sbmcl.stream.knowledge import Knowledge
from sbmcl.stream.labels import from_json, to_json
from sbmcl.stream.priors import dimensions, prior_from
from sbmcl.stream.sums import Grid

FORMAT = "sbmcl-learner/1"
HEADER = "learner.json"


@dataclass(frozen=True)
class Parts:
    """All that a learner consists of."""

    encoder: Encoder
    prior: Belief
    scale: float
    grid: Grid | None
    known: Knowledge


def holds_learner(folder: Path) -> bool:
    return (folder / HEADER).exists()


def stamp(folder: Path) -> tuple[int, int]:
    """Changes whenever what is in the folder does: its generation, and bytes of its journal; zeros where there is none."""
    if not holds_learner(folder):
        return 0, 0
    generation = _header(folder)["generation"]
    journal = _journal(folder, generation)
    return generation, journal.stat().st_size if journal.exists() else 0


def width_of(prior: Belief) -> int:
    """Columns of the sums: the count of examples, and all natural parameters of one class."""
    return 1 + sum(value.numel() for value in prior.naturals.values())


def write(folder: Path, parts: Parts, model: str, *, journal: bool = False) -> int:
    """The next generation of what is in a folder that is locked; returns its number. `model` is the model's digest."""
    before, _ = stamp(folder)
    generation, origin = before + 1, parts.encoder.origin
    if before == 0 and origin is not None:
        RunFolder(folder).save_weights("last", origin.method, origin.step)
    about, tensors = _described(parts)
    state = bytes_of({name: value.contiguous() for name, value in tensors.items()})
    about |= {"generation": generation, "model": model, "state": hashlib.sha256(state).hexdigest()}
    write_atomically(_state(folder, generation), state)
    if journal:
        Journal.create(_journal(folder, generation), {"model": model, "generation": generation}).close()
        sync_folder(folder)
    write_atomically(folder / HEADER, (json.dumps(about | {"checksum": _checksum(about)}, indent=1) + "\n").encode())
    for path in folder.iterdir():
        number = re.fullmatch(r"(?:state|journal)-(\d+)\.(?:safetensors|log)", path.name)
        if number and int(number[1]) != generation:
            path.unlink(missing_ok=True)
    return generation


@dataclass(frozen=True)
class Learned:
    """A record of the journal."""

    codes: Tensor
    y: Any
    source: Hashable


def read(folder: Path, network: Network | None = None) -> tuple[Parts, list[Learned], int, int]:
    """What was saved, what was learned since, the generation, and where the journal's whole records end."""
    about, state, journal = _contents(folder)
    with _explained(folder):
        if hashlib.sha256(state).hexdigest() != about["state"]:
            raise ValueError("the state file is not the one that was saved")
        parts = _restored(folder, about, tensors_of(state), network)
        learned, end = _replayed(journal, about, parts)
    return parts, learned, about["generation"], end


def _contents(folder: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """Header, state and journal of one generation, though somebody may be replacing them meanwhile."""
    for _ in range(10):
        about = _header(folder)
        journal = _journal(folder, about["generation"])
        try:
            found = (
                about,
                _state(folder, about["generation"]).read_bytes(),
                journal.read_bytes() if journal.exists() else b"",
            )
        except FileNotFoundError:
            continue
        if _header(folder)["generation"] == about["generation"]:
            return found
    raise ValueError(f"{folder} has a {HEADER}, but not the state that it speaks of; copy the whole folder")


class Home:
    """The folder of a learner that keeps a journal: locked, so that only one process learns there."""

    def __init__(self, folder: Path):
        if (folder / "config.json").exists():
            raise ValueError(f"{folder} is a run; save the learner in a folder of its own")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.journal: Journal | None = None
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ValueError(f"another process learns in {folder}; stop it first, or copy the folder") from error
        self._lock: int | None = lock

    def open(self, generation: int, end: int, model: str) -> None:
        path = _journal(self.folder, generation)
        if not path.exists():
            self.journal = Journal.create(path, {"model": model, "generation": generation})
            sync_folder(self.folder)
            return
        lost = path.stat().st_size - end
        if lost:
            warnings.warn(
                f"{path} ended in {lost} bytes of a record that was never acknowledged; they were cut off", stacklevel=4
            )
        self.journal = Journal(path, end)
        if end == 0:  # killed before the first record was whole
            self.journal.append({"model": model, "generation": generation}, b"")

    def append(self, codes: Tensor, y: Any, source: Hashable) -> None:
        if self.journal is None:
            raise OSError(f"nothing was learned, since the last save in {self.folder} failed; save again first")
        targets = y.numpy().astype("<f8").tobytes() if isinstance(y, Tensor) else b""
        labels = None if isinstance(y, Tensor) else [to_json(label) for label in y]
        about = {"n": len(codes), "labels": labels, "source": to_json(source)}
        self.journal.append(about, codes.numpy().astype("<f8").tobytes() + targets)

    def checkpoint(self, parts: Parts, model: str) -> None:
        if self.journal is not None:
            self.journal.close()
        self.journal = None  # until all of what follows has gone well
        generation = write(self.folder, parts, model, journal=True)
        path = _journal(self.folder, generation)
        self.journal = Journal(path, path.stat().st_size)

    def close(self) -> None:
        """Nothing, the second time."""
        if self.journal is not None:
            self.journal.close()
        if self._lock is not None:
            os.close(self._lock)
        self.journal = self._lock = None

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()


def _state(folder: Path, generation: int) -> Path:
    return folder / f"state-{generation}.safetensors"


def _journal(folder: Path, generation: int) -> Path:
    return folder / f"journal-{generation}.log"


def _checksum(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Whatever a file makes go wrong is a ValueError that names the folder."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{folder} holds no whole learner that this version reads: {error}") from error


def _header(folder: Path) -> dict[str, Any]:
    if not holds_learner(folder):
        raise FileNotFoundError(f"{folder} holds no learner (it has no {HEADER}); StreamLearner.save writes one")
    with _explained(folder):
        about = json.loads((folder / HEADER).read_bytes())
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            found = about.get("format") if isinstance(about, dict) else about
            raise ValueError(f"{HEADER} has format {str(found)[:40]!r}; this version of sbmcl reads {FORMAT!r}")
        if about.pop("checksum", None) != _checksum(about):
            raise ValueError(f"{HEADER} is not what was saved")
        if not isinstance(about["generation"], int) or about["generation"] < 1:
            raise ValueError("its generation is no number")
    return about


def _described(parts: Parts) -> tuple[dict[str, Any], dict[str, Tensor]]:
    known, encoder = parts.known, parts.encoder
    keys, sources, ledger = known.keys(), known.sources(), known.ledger()
    at_key, at_source = ({name: at for at, name in enumerate(names)} for names in (keys, sources))
    pairs = [(at_source[source], at_key[key]) for source in sources for key in known.keys_from(source)]
    tensors = {f"prior.{name}": value for name, value in vars(parts.prior).items()}
    for name, scale in (("x", encoder.x_scale), ("y", encoder.y_scale)):
        if scale is not None:
            tensors |= {f"{name}.mean": scale.mean, f"{name}.deviation": scale.deviation}
    tensors |= {"classes": known.by_class.rows(keys), "ledger": known.by_source.rows(ledger)}
    tensors["ledger.place"] = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    origin = encoder.origin
    about = {
        "format": FORMAT,
        "version": __version__,
        "belief": type(parts.prior).__name__,
        "scale": parts.scale,
        "grid": None if parts.grid is None else parts.grid.bits,
        "encoder": {"identity": encoder.identity, "x_shape": encoder.x_shape},
        "run": None
        if origin is None
        else {"experiment": origin.experiment.to_json(), "step": origin.step}
        | {"kind": origin.shapes.kind, "x_shape": origin.shapes.x_shape, "y_shape": origin.shapes.y_shape},
        "classes": [to_json(key) for key in keys],
        "ids": [known.ids[key] for key in keys],
        "next_id": known.next_id,
        "sources": [to_json(source) for source in sources],
    }
    return about, tensors


def _restored(folder: Path, about: dict[str, Any], tensors: dict[str, Tensor], network: Network | None) -> Parts:
    prior = prior_from(
        about["belief"], {n.removeprefix("prior."): t for n, t in tensors.items() if n.startswith("prior.")}
    )
    scale = about["scale"]
    grid = None if about["grid"] is None else Grid(about["grid"])
    if not isinstance(scale, float) or not 0 < scale < float("inf"):
        raise ValueError("its scale is no positive number")
    known = Knowledge(width_of(prior), grid)
    known.restore(
        [from_json(label) for label in about["classes"]],
        [from_json(source) for source in about["sources"]],
        tensors["classes"],
        tensors["ledger"],
        tensors["ledger.place"],
        about["ids"],
        about["next_id"],
    )
    return Parts(_encoder(folder, about, tensors, network, dimensions(prior)[0]), prior, scale, grid, known)


def _encoder(
    folder: Path, about: dict[str, Any], tensors: dict[str, Tensor], network: Network | None, dim: int
) -> Encoder:
    saved, run = about["encoder"], about["run"]
    if run is not None:
        scales = [
            Scale(tensors[f"{name}.mean"], tensors[f"{name}.deviation"]) if f"{name}.mean" in tensors else None
            for name in "xy"
        ]
        experiment = Experiment.from_json(run["experiment"])
        shapes = Shapes(run["kind"], tuple(run["x_shape"]), tuple(run["y_shape"]))
        method = experiment.method.build(shapes)
        RunFolder(folder).load_weights(method, "last")
        found = Encoder.of_origin(Origin(experiment, shapes, method.eval(), run["step"]), *scales)
    elif saved["identity"] == "none":
        found = Encoder.of(None, None, dim)
    elif network is None:
        raise ValueError(f"it was saved with the encoder {saved['identity']!r}; pass it: load(folder, encoder=...)")
    else:
        name = saved["identity"].rsplit(" ", 1)[0] if isinstance(network, torch.nn.Module) else saved["identity"]
        found = Encoder.of(network, name, 0)
    shape = None if found.x_shape is None else list(found.x_shape)
    if shape != saved["x_shape"]:
        raise ValueError(f"its examples have shape {saved['x_shape']}, but its encoder takes {shape}")
    if found.identity != saved["identity"]:
        raise ValueError(f"its encoder is {saved['identity']!r}, but this is {found.identity!r}")
    return found


def _replayed(journal: bytes, about: dict[str, Any], parts: Parts) -> tuple[list[Learned], int]:
    """What was learned since, after a first record that says whose journal it is; and where the whole records end."""
    found = list(records(journal))
    if found and found[0].about != {"model": about["model"], "generation": about["generation"]}:
        raise ValueError("its journal belongs to another learner")
    return [_learned(record.about, record.body, parts) for record in found[1:]], found[-1].end if found else 0


def _learned(about: dict[str, Any], body: bytes, parts: Parts) -> Learned:
    dim, targets = dimensions(parts.prior)
    regression = targets > 0
    n, labels = about["n"], about["labels"]
    if not isinstance(n, int) or n < 1 or len(body) != 8 * n * (dim + targets) or (labels is None) != regression:
        raise ValueError("a record of the journal does not fit the learner")
    numbers = torch.from_numpy(np.frombuffer(body, "<f8").astype(np.float64))
    if not bool(torch.isfinite(numbers).all()):
        raise ValueError("a record of the journal has numbers that are not finite")
    codes, y = numbers[: n * dim].reshape(n, dim), numbers[n * dim :].reshape(n, targets)
    if parts.grid is not None and not all(torch.equal(parts.grid.rounded(part), part) for part in (codes, y)):
        raise ValueError("a record of the journal has numbers that are not on the grid")
    if not regression:
        y = [from_json(label) for label in labels]
        if len(y) != n:
            raise ValueError("a record of the journal has not as many labels as examples")
    return Learned(codes, y, from_json(about["source"]))
