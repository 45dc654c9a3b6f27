"""What a long run says while it works: a live bar on a terminal, a line now and then everywhere else."""

import sys
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

QUIET_SECONDS = 15.0


class Progress:
    """Counts steps, with loss, episodes a second and the time left."""

    def __init__(self, steps: int, done: int = 0, *, enabled: bool = True):
        self.steps, self.enabled = steps, enabled
        self.console = Console(stderr=True)
        self.live = enabled and sys.stderr.isatty()
        self._began, self._first, self._spoke = time.perf_counter(), done, 0.0
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = Bar(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console, disable=not self.live
        )
        self._task = self._bar.add_task("first steps", total=steps, completed=done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.stop()

    def update(self, step: int, episodes: int, means: dict[str, float]) -> None:
        now = time.perf_counter()
        rate = (step - self._first) / max(now - self._began, 1e-9)
        values = "  ".join(f"{name} {value:.4g}" for name, value in means.items())
        text = f"{values}  {rate * episodes:.1f} episodes/s"
        if self.live:
            self._bar.update(self._task, completed=step, description=text)
        elif now - self._spoke > QUIET_SECONDS or step == self.steps:
            self._spoke = now
            self.note(f"step {step:,}/{self.steps:,}  {text}  {(self.steps - step) / rate / 60:.1f} min left")

    def note(self, text: str) -> None:
        if self.enabled:
            self._bar.console.print(text, highlight=False, soft_wrap=True)
