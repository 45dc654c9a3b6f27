"""Do pictures drawn after a stream look like its classes? It names no method and no data set.

An episode has twice as many tasks as are learned. A picture goes to the class of its nearest reference, a drawing that no
stream has shown; half of the references are of classes learned and half of the others:

    likeness            the share of samples, drawn after the stream, that go to a class learned
    likeness_prior      the same of samples drawn before it: the floor
    likeness_drawings   the same of other real drawings of the classes learned: the ceiling of this measure

Chance is one half, exactly: for who knows nothing of the stream, the two halves are exchangeable.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.episode import Episode
from sbmcl.evaluate import Asked, Measure, Question, Trained, learn_in_chunks, questions
from sbmcl.heads import DiffusionHead
from sbmcl.methods.base import Method
from sbmcl.results import LIKENESS, LIKENESS_DRAWINGS, LIKENESS_PRIOR, Row, mean_and_spread

EPISODES = 50  # unless said otherwise: drawing takes much longer than scoring
SAMPLES = 20  # of each episode
EACH = 5  # references of each class, and as many other drawings
STEPS = 50  # of DDIM, where the samples come from a diffusion

Pictures = Float[Tensor, "b n c h w"]


@runtime_checkable
class Generative(Protocol):
    """A method that can draw."""

    def sample(
        self, state: Any, n: int, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n c h w"]:
        """New pictures in [-1, 1], as of those learned."""
        ...


def likeness(
    trained: Trained,
    pair: tuple[int, int] = (10, 10),
    *,
    episodes: int | None = None,
    at_mode: bool = False,
    on: str | None = None,
    split: Asked = "test",
) -> list[Row]:
    """Three rows, of samples after so many streams."""
    asked = among_others(trained, pair, on=on, split=split)
    count = episodes or min(EPISODES, trained.experiment.method.default_episodes)
    measure, shares = Measure(trained, asked), {}
    for episode, rng in asked.draw(count, measure.state_bytes, trained.device):
        for name, share in shares_of(trained.method, episode, rng, at_mode=at_mode).items():
            shares.setdefault(name, []).extend(share.tolist())
    stem = measure.row(count, at_mode=at_mode)
    return [
        replace(stem, metric=name, scores=tuple(round(s, 6) for s in found), **mean_and_spread(found))  # pyright: ignore
        for name, found in shares.items()
    ]


@dataclass(frozen=True)
class AmongOthers(Question):
    """The queries are of twice as many tasks as the stream."""

    def episode(self, number: int) -> Episode:
        shape = replace(self.shape, tasks=2 * self.shape.tasks)
        whole = self.source.draw(shape, 1, rng_for(0, f"episode of {self}", number))
        return Episode(whole.stream[: self.shape.stream_length], whole.query)

    def __str__(self) -> str:
        return f"{super().__str__()}, among as many others"


def among_others(
    trained: Trained, pair: tuple[int, int], *, on: str | None = None, split: Asked = "test"
) -> AmongOthers:
    """The question; where samples cannot be drawn, or not so many classes, it is refused."""
    check_generative(trained, None)
    tasks, shots = pair
    (wider,) = questions(trained, [(2 * tasks, shots)], on=on, split=split)
    shape = EpisodeShape(tasks, shots, 2 * EACH)
    wider.source.check(replace(shape, tasks=2 * tasks))
    return AmongOthers(wider.data, wider.source, wider.split, shape)


def check_generative(trained: Trained, steps: int | None) -> None:
    """Refuse a method that draws no samples, or none in so many steps."""
    recipe, method = trained.experiment.recipe, trained.method
    if not isinstance(method, Generative):
        raise ValueError(
            f"{recipe} draws no samples (its {type(method).__name__} answers by {method.head.metric}); only generative "
            f"methods do, such as those of the recipes omniglot-vae-sbmcl and omniglot-ddpm-sbmcl"
        )
    longest = method.head.steps if isinstance(method.head, DiffusionHead) else None
    if steps is not None and longest is not None and not 1 <= steps <= longest:
        raise ValueError(f"{recipe} draws in 1 to {longest} steps, not in {steps}; its diffusion has no more (--steps)")


@torch.no_grad()
def drawn(
    method: Method[Any],
    state: Any,
    n: int,
    *,
    rng: torch.Generator,
    at_mode: bool = False,
    steps: int | None = STEPS,
) -> Pictures:
    """Samples; of a diffusion by DDIM in so many steps, or by the ancestral sampler."""
    sample = cast(Callable[..., Pictures], method.sample)
    options = {"steps": steps} if isinstance(method.head, DiffusionHead) else {}
    return sample(state, n, rng=rng, at_mode=at_mode, **options)


@torch.no_grad()
def shares_of(
    method: Method[Any], episode: Episode, rng: torch.Generator, *, at_mode: bool = False
) -> dict[str, Float[Tensor, "b"]]:
    """The three shares of every episode."""
    prior = method.init(episode.size, rng=rng)
    after = learn_in_chunks(method, prior, episode.stream)
    steps = min(STEPS, method.head.steps) if isinstance(method.head, DiffusionHead) else None
    tasks = 1 + int(episode.stream.task.max())
    drawings = episode.query.x.unflatten(1, (2 * tasks, 2 * EACH))
    references, others = (part.flatten(1, 2) for part in (drawings[:, :, :EACH], drawings[:, :tasks, EACH:]))
    pictures = {
        LIKENESS: drawn(method, after, SAMPLES, rng=rng, at_mode=at_mode, steps=steps),
        LIKENESS_PRIOR: drawn(method, prior, SAMPLES, rng=rng, at_mode=at_mode, steps=steps),
        LIKENESS_DRAWINGS: others,
    }
    learned = tasks * EACH  # references of classes learned come first
    return {name: (nearness(x, references).argmax(-1) < learned).double().mean(1).cpu() for name, x in pictures.items()}


def nearness(pictures: Pictures, references: Float[Tensor, "b m c h w"]) -> Float[Tensor, "b n m"]:
    """Correlation of the pixels, both blurred, at the best of all shifts by up to a tenth of the width.

    So neither ink nor contrast count, nor a place a few pixels off. How much blur and shift is best was found on the
    background characters of Omniglot: of real drawings, 0.94 then go to one of ten classes learned among twenty, instead of
    0.75 without either.
    """
    width = pictures.shape[-1]
    reach = round(width / 10)
    mine = _standardised(_blurred(pictures))
    theirs = F.pad(_blurred(references).flatten(0, 1), (reach,) * 4, mode="replicate")
    windows = theirs.unfold(2, references.shape[-2], 1).unfold(3, width, 1).unflatten(0, references.shape[:2])
    nearest = torch.full((*pictures.shape[:2], references.shape[1]), -torch.inf, device=mine.device, dtype=mine.dtype)
    for down in range(2 * reach + 1):
        for right in range(2 * reach + 1):
            nearest = torch.maximum(nearest, mine @ _standardised(windows[:, :, :, down, right]).mT)
    return nearest


def _blurred(pictures: Pictures) -> Pictures:
    """Means of 3 x 3 pixels, over and over in large pictures."""
    flat = pictures.flatten(0, 1)
    for _ in range(max(1, pictures.shape[-1] // 16)):
        flat = F.avg_pool2d(flat, 3, stride=1, padding=1, count_include_pad=False)
    return flat.unflatten(0, pictures.shape[:2])


def _standardised(pictures: Pictures) -> Float[Tensor, "b n d"]:
    """Vectors whose inner products are correlations; of an even picture, which is like nothing, zeros."""
    flat = pictures.flatten(2)
    return F.normalize(flat - flat.mean(-1, keepdim=True), dim=-1, eps=1e-6)
