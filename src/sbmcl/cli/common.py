"""What verbs share: the console, how a verb fails, and the types of options that are not plain numbers."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console

if TYPE_CHECKING:
    import torch

console = Console(highlight=False)
"""What was asked for, on standard output; what is said in passing goes to standard error."""
aside = Console(stderr=True, highlight=False)


STYLE = (tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)
"""How options are written: `None` is what an option is when it is left out, and what is off is switched on by its name."""


class Exit(IntEnum):
    """Codes a script can tell apart."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    DIVERGED = 3
    INTERRUPTED = 130


class Failure(Exception):
    """Ends the program with a message and a code of `Exit`."""

    def __init__(self, message: str, code: Exit = Exit.FAILED):
        super().__init__(message)
        self.code = code


@contextmanager
def outcomes() -> Iterator[None]:
    """The ways in which training ends early, as exit codes."""
    from sbmcl.team import Deserted
    from sbmcl.train import Diverged, Interrupted

    try:
        yield
    except Deserted as error:
        raise Failure(str(error)) from error
    except Diverged as error:
        raise Failure(str(error), Exit.DIVERGED) from error
    except Interrupted as stop:
        raise Failure(str(stop), Exit.INTERRUPTED) from stop


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: what it may have meant, if anything is near."""
    close = get_close_matches(word, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else "."


def seconds_in(text: str) -> float:
    """The length of '90s', '15m', '1h30m'."""
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip().lower())
    hours, minutes, seconds = (int(part or 0) for part in parts.groups()) if parts else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if not total:
        raise Failure(f"{text!r} is no length of time; write it like 90s, 15m or 1h30m", Exit.USAGE)
    return total


def device_named(name: str) -> "torch.device":
    """`auto` is the GPU where there is one."""
    import torch

    if name == "auto":
        mine = int(os.environ.get("LOCAL_RANK", "0"))  # of the processes that torchrun started here
        return torch.device("cuda", mine) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise Failure(
            f"--device {name} cannot be used here: {reason}. Use auto, cpu, cuda or cuda:1", Exit.USAGE
        ) from error
    return device


def use_threads(threads: int | None) -> None:
    """Of one process; what runs side by side should share the cores."""
    import torch

    if threads is not None:
        if threads < 1:
            raise Failure(f"--threads counts from 1, but got {threads}", Exit.USAGE)
        torch.set_num_threads(threads)


def shown(path: Path) -> str:
    """A path as one would type it from here."""
    absolute = path.resolve()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)
