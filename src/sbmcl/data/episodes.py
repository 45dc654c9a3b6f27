"""What an episode source is, its shape, and the seeds that make every draw repeatable.

Imports no torch at run time, so that listings and `--help` stay instant.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from sbmcl.episode import Episode


Kind = Literal["classes", "vector", "image", "angle", "generation", "binary"]
"""What is asked for: a label, a vector, a picture, an angle (as cosine and sine), or nothing but the input itself, which is a
picture or (`binary`) one of pixels -1 and 1."""

TaskName = Literal[
    "classification", "completion", "rotation", "rotation-offset", "generation", "generation-16", "binarised"
]
"""What can be asked about pictures; `tasks` says how."""


@dataclass(frozen=True)
class EpisodeShape:
    """How long a stream is and how it is asked."""

    tasks: int = 10  # K
    shots: int = 10  # S, training examples of each task
    queries: int = 10  # S', test examples of each task

    def __post_init__(self) -> None:
        for name in ("tasks", "shots", "queries"):
            if getattr(self, name) < 1:
                raise ValueError(f"an episode needs at least one of its {name}, but got {getattr(self, name)}")

    @property
    def stream_length(self) -> int:
        return self.tasks * self.shots


@runtime_checkable
class EpisodeSource(Protocol):
    """Anything that episodes can be drawn from: a split of an image store, a family of functions, your own."""

    @property
    def x_shape(self) -> tuple[int, ...]: ...

    @property
    def y_shape(self) -> tuple[int, ...]: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def query_cap(self) -> int:
        """At most so many queries a task in an evaluation."""
        ...

    def draw(self, shape: EpisodeShape, batch: int, rng: "torch.Generator") -> "Episode":
        """`batch` episodes side by side, a function of `rng` alone, on `rng`'s device."""
        ...

    def check(self, shape: EpisodeShape) -> None:
        """A ValueError that says why, where such episodes cannot be drawn."""
        ...


def rng_for(seed: int, purpose: str, index: int, device: "torch.device | str" = "cpu") -> "torch.Generator":
    """A generator that depends on nothing but its arguments: step 7 draws the same whatever was drawn before.

    So a run resumes without saving any generator's state, and episode 7 of an evaluation is the same for every method,
    batch size and machine.
    """
    import numpy as np
    import torch

    entropy = [seed, int.from_bytes(purpose.encode(), "little"), index]
    word = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(word) >> 1)
