"""A run folder: everything about one meta-training, enough to repeat it, resume it or use it.

    config.json        the whole experiment              log.jsonl          losses and validation scores
    environment.json   versions, hardware, commit        checkpoint.pt      trainer state, for --resume
    last.safetensors   the newest weights                best.safetensors   the best on validation, if there is one
    tensorboard/       the log for TensorBoard, where that is installed

Files are replaced atomically. Weights are safetensors with a JSON header; the trainer's state loads with `weights_only`, so
nothing in a run folder can execute code.
"""

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from sbmcl import __version__
from sbmcl.experiment import Experiment

WEIGHTS_FORMAT = "sbmcl-weights/1"
Which = Literal["best", "last"]


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @classmethod
    def create(cls, path: Path, experiment: Experiment[Any, Any], device: torch.device) -> "RunFolder":
        cls.refuse_used(path)
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        write_atomically(path / "environment.json", _pretty(environment(device)))
        write_atomically(path / "config.json", _pretty(experiment.to_json()))  # last: it makes the folder a run
        return folder

    @staticmethod
    def refuse_used(path: Path) -> None:
        if (path / "config.json").exists():
            raise FileExistsError(
                f"{path} already holds a run. Add --resume to go on with it, or --run NEW_FOLDER to start another; "
                f"nothing is ever overwritten."
            )

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        if not (path / "config.json").exists():
            raise FileNotFoundError(f"{path} is no run folder (it has no config.json); 'sbmcl train RECIPE' makes one")
        return cls(path)

    def experiment(self) -> Experiment[Any, Any]:
        try:
            return Experiment.from_json(json.loads((self.path / "config.json").read_text()))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path / 'config.json'} cannot be read: {error}") from error

    def environment(self) -> dict[str, Any]:
        return json.loads((self.path / "environment.json").read_text())

    def log(self, **values: int | float) -> None:
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")

    def read_log(self) -> list[dict[str, Any]]:
        path = self.path / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [entry for line in lines if (entry := _whole(line)) is not None]

    def rewind_log(self, step: int) -> None:
        """Drop what was logged after the checkpoint that a run resumes from; those steps will be done again."""
        kept = [json.dumps(entry) + "\n" for entry in self.read_log() if entry["step"] <= step]
        write_atomically(self.path / "log.jsonl", "".join(kept).encode())

    def sweep(self) -> None:
        """Clear away the halves of files that a kill left behind."""
        for part in self.path.glob("*.part"):
            part.unlink(missing_ok=True)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        part = self.path / f"checkpoint.{os.getpid()}.part"
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / "checkpoint.pt")

    def load_checkpoint(self, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        path = self.path / "checkpoint.pt"
        return torch.load(path, map_location=device, weights_only=True) if path.exists() else None

    def checkpoint_step(self) -> int:
        saved = self.load_checkpoint()
        return saved["step"] if saved else 0

    def save_weights(self, which: Which, method: nn.Module, step: int) -> None:
        header = {"format": WEIGHTS_FORMAT, "version": __version__, "method": type(method).__name__, "step": str(step)}
        tensors = {name: value.detach().cpu().contiguous() for name, value in method.state_dict().items()}
        write_atomically(self.path / f"{which}.safetensors", save(tensors, header))

    def load_weights(self, method: nn.Module, which: Which | None = None) -> int:
        """Fill a method with weights (the best if there are any, else the last); returns the step they are from."""
        which = which or ("best" if (self.path / "best.safetensors").exists() else "last")
        path = self.path / f"{which}.safetensors"
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is missing; the run wrote no weights yet. Train it: sbmcl train {self.path} --resume"
            )
        header, weights = _read_weights(path)
        if header["method"] != type(method).__name__:
            raise ValueError(
                f"{path} holds a {header['method']}, but {self.path / 'config.json'} says {type(method).__name__}"
            )
        mine = method.state_dict()
        unlike = [
            n
            for n in mine.keys() | weights.keys()
            if n not in mine or n not in weights or mine[n].shape != weights[n].shape
        ]
        if unlike:
            raise ValueError(
                f"{path} (written by sbmcl {header['version']}) does not fit this {header['method']}: "
                f"{', '.join(sorted(unlike)[:5])} "
                f"are missing, foreign or of another shape. Use the version of sbmcl that wrote it, or train again."
            )
        method.load_state_dict(weights)
        return int(header["step"])

    def is_finished(self, steps: int) -> bool:
        return self.checkpoint_step() >= steps


def _read_weights(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except Exception as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from error
    if header.get("format") != WEIGHTS_FORMAT:
        raise ValueError(f"{path} has format {header.get('format')!r}; this version of sbmcl reads {WEIGHTS_FORMAT!r}")
    return header, weights


def write_atomically(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """A new name is on the disk only when its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def environment(device: torch.device) -> dict[str, Any]:
    return {
        "sbmcl": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": hardware(device),
        "command": sys.argv,
    }


def hardware(device: torch.device) -> str:
    """Short, and enough to know what a time is worth."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {torch.get_num_threads()} threads"


def commit() -> str | None:
    """The commit of the source tree this runs from, `+` if it was changed since; None when installed elsewhere."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        status = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if status.stdout.strip() else "")


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _whole(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:  # the line a kill cut short
        return None
