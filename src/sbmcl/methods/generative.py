"""Methods without any y: a picture is its own answer. What they have in common, whatever they remember a stream with.

A method says which models a stream leaves behind; scores, reconstructions and new pictures then come from here, on the same
terms for all. To make a generative method of a new kind of state, subclass `Generative` beside it.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils import _pytree as pytree

from sbmcl.beliefs.base import standard_normal
from sbmcl.data.episodes import rng_for
from sbmcl.episode import Examples
from sbmcl.heads import DiffusionHead, Head, VAEHead
from sbmcl.methods.base import Method
from sbmcl.state import map_tensors, state

S = TypeVar("S")


@dataclass(frozen=True)
class Model:
    """A model of pictures, as each of so many `streams` side by side left it."""

    streams: int
    answer: Callable[..., Any]
    """Of what the head asks."""
    decode: Callable[[Tensor], Tensor]
    """Of an auto-encoder: from latents u to pictures, as the head reads them."""


class Generative(Method[S]):
    """How well a model accounts for a picture is the score."""

    @abstractmethod
    def models(
        self, state: S, n: int, *, rng: torch.Generator | None, at_mode: bool = False, draws: int | None = None
    ) -> list[Model]:
        """For n pictures: one for each of `draws` of what is uncertain, or a single one where nothing is."""

    def code(self, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n *c"]:
        """What questions give a model in place of a picture, so that it is worked out once for all of them."""
        return x

    def score(
        self, state: S, queries: Examples, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> dict[str, Float[Tensor, "b n"]]:
        """The mean of the scores over models and over random questions; every model is asked the same ones."""
        code, models = self.code(queries.x), self.models(state, len(queries), rng=rng, at_mode=at_mode)
        found: dict[str, Tensor] = {}
        for _ in range(self.head.questions):
            inputs, target = self.head.ask(code, queries.x, rng)
            for model in models:
                for name, score in self.head.scores(model.answer(*inputs), target).items():
                    found[name] = found[name] + score if name in found else score
        return {name: total / (self.head.questions * len(models)) for name, total in found.items()}

    @abstractmethod
    def sample(
        self, state: S, n: int, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n c h w"]:
        """New pictures in [-1, 1], as of those learned."""


class OfVAE(Generative[S]):
    """The models are variational auto-encoders."""

    def predict(
        self,
        state: S,
        x: Float[Tensor, "b n c h w"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> Float[Tensor, "b n c h w"]:
        """Reconstructions: each picture from the mean of its u, averaged over models."""
        head = cast(VAEHead, self.head)
        code, models = self.code(x), self.models(state, x.shape[1], rng=rng, at_mode=at_mode)
        silence = torch.zeros(*x.shape[:2], head.latent, dtype=x.dtype, device=x.device)
        return torch.stack([head.pictures(model.answer(code, silence).logits) for model in models]).mean(0)

    @torch.no_grad()
    def sample(
        self, state: S, n: int, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n c h w"]:
        head = cast(VAEHead, self.head)
        (model,) = self.models(state, n, rng=rng, at_mode=at_mode, draws=1)
        u = standard_normal((model.streams, n, head.latent), next(self.parameters()), rng)
        return head.pictures(model.decode(u))


class OfDDPM(Generative[S]):
    """The models predict the noise in pictures of `shape`."""

    shape: tuple[int, ...]

    def predict(
        self,
        state: S,
        x: Float[Tensor, "b n c h w"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> Float[Tensor, "b n c h w"]:
        """Reconstructions: each picture as it is guessed in one step from the middle of its diffusion, averaged over models."""
        head = cast(DiffusionHead, self.head)
        t = torch.full(x.shape[:2], head.steps // 2, device=x.device)
        x_t = head.noised(x, t, standard_normal(x.shape, x, rng))
        models = self.models(state, x.shape[1], rng=rng, at_mode=at_mode)
        noise = torch.stack([model.answer(x_t, t) for model in models]).mean(0)
        return head.cleaned(x_t, t, noise).clamp(-1, 1)

    @torch.no_grad()
    def sample(
        self,
        state: S,
        n: int,
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
        steps: int | None = None,
    ) -> Float[Tensor, "b n c h w"]:
        """By the ancestral sampler, or by DDIM in so many `steps`."""
        (model,) = self.models(state, n, rng=rng, at_mode=at_mode, draws=1)
        start = standard_normal((model.streams, n, *self.shape), next(self.parameters()), rng)
        head = cast(DiffusionHead, self.head)
        return head.ancestral(model.answer, start, rng) if steps is None else head.ddim(model.answer, start, steps)


@state
class Questions:
    """What a stream is asked while it is learned, where that is random: a seed of its own, and how often it was asked.

    So a question follows from the stream and the place in it, however the stream is cut, in whatever precision.
    """

    seed: Int[Tensor, "b"]
    count: Int[Tensor, ""]

    @classmethod
    def of(cls, batch: int, rng: torch.Generator | None, device: torch.device) -> "Questions":
        """A seed for each stream, or the same for all without `rng`."""
        seed = torch.zeros(batch, dtype=torch.long, device=device)
        if rng is not None:
            seed = torch.randint(2**31, (batch,), generator=rng, device=device)
        return cls(seed, torch.zeros((), dtype=torch.long, device=device))

    def ask(self, head: Head, x: Float[Tensor, "b n *x"]) -> tuple[tuple[tuple[Tensor, ...], Tensor], "Questions"]:
        """What the head gives and judges by, for all examples together; and the questions that are left."""
        each = [
            head.ask(one.float(), one.float(), rng_for(seed, "question", int(self.count), x.device))
            for one, seed in zip(x.split(1), self.seed.tolist(), strict=True)
        ]
        asked = pytree.tree_map(lambda *parts: torch.cat(parts), *each)
        return map_tensors(lambda t: t.to(x.dtype) if t.is_floating_point() else t, asked), self.later(1)

    def ask_each(self, head: Head, x: Float[Tensor, "b n *x"]) -> tuple[tuple[tuple[Tensor, ...], Tensor], "Questions"]:
        """The same, for every example alone, in turn."""
        each = [self.later(place).ask(head, one)[0] for place, one in enumerate(x.split(1, dim=1))]
        return pytree.tree_map(lambda *parts: torch.cat(parts, dim=1), *each), self.later(x.shape[1])

    def later(self, count: int) -> "Questions":
        return replace(self, count=self.count + count)
