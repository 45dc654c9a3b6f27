"""OML and OML-Reptile: every example is one step of gradient descent on a small network with meta-learned initial
weights.

The encoder stands still while a stream is learned; the state is the fast weights behind it, fixed in size, and the
label codes of a classifier (SPEC 3.2, 5; Javed and White 2019). What the fast layers give becomes a prediction in
`OML.answer`: another model of them, with parts between or after, overrides that method alone, since the loss of an
inner step is the head's loss of that prediction and its gradient is taken through whatever it went through.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sbmcl.episode import Episode, Examples
from sbmcl.heads import Head
from sbmcl.methods.base import Losses, Method
from sbmcl.methods.codes import Codebook, labels
from sbmcl.nets.fast import FastMLP, FastWeights, Layer, Steps, Still, descend
from sbmcl.state import map_tensors, state

Run = Callable[..., Any]
BLOCK = 128  # examples between two collapses of a stream's steps into weights; any number gives the same state


@state
class FastState:
    layers: tuple[FastWeights, ...]
    codes: Int[Tensor, "b v"] | None  # of a classifier: which output stands for which label


class OML(Method[FastState]):
    """The outer loop differentiates the queries' loss through all inner steps, in the encoder, the initial fast weights
    and the inner rate, one logarithm for all layers.

    A classifier has an output for each of `classes` codes. Its last layer is meta-learned and labels get new codes in
    every stream; with `redraw` they do not, and the last layer starts anew from random weights instead, as published
    (SPEC D10). `decoder` makes a prediction of the last layer's output; the inner steps pass through it and leave it
    alone. Its batch-norms stand still in them, in meta-training as in a stream (published, they do so in a stream alone,
    SPEC D17); they move with the queries.
    """

    def __init__(
        self,
        encoder: nn.Module,
        fast: FastMLP,
        head: Head,
        *,
        rate: float = 0.03,
        classes: int = 0,
        redraw: bool = False,
        decoder: nn.Module | None = None,
    ):
        super().__init__()
        self.head = head
        self.encoder = encoder
        self.fast = fast
        self.decoder = decoder
        self.log_rate = nn.Parameter(torch.tensor(math.log(rate)))
        self.codebook = Codebook(classes) if classes else None
        self.redraw = redraw
        if redraw:
            fast.last.requires_grad_(False)

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> FastState:
        start = self._start(batch, rng)
        return replace(start, layers=tuple(layer.for_each(batch) for layer in start.layers))

    def learn(self, state: FastState, examples: Examples) -> FastState:
        x, target = self.run(self.encoder, examples.x), self._target(state, examples)
        for first in range(0, len(examples), BLOCK):
            span = slice(first, first + BLOCK)
            state = self._collapsed(state, self._steps(state, x[:, span], target[:, span]))
        return state

    def predict(
        self, state: FastState, x: Float[Tensor, "b n *x"], *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Tensor:
        return self._predict(state, self.run(self.encoder, x))

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        return self._asked_after(episode, rng)[0]

    def answer(self, layer: Layer, run: Run, x: Float[Tensor, "b n d"]) -> Tensor:
        """The prediction for encoded inputs, with the fast layers as they are at this moment.

        `run` takes a fixed network and its inputs, as `Method.run` does; in an inner step the network stands still.
        """
        out = self.fast.through(layer, x)
        return out if self.decoder is None else run(self.decoder, out)

    def _asked_after(self, episode: Episode, rng: torch.Generator | None) -> tuple[Losses, FastState]:
        """The loss of the queries after the stream, and the state they were asked in."""
        seen, asked = episode.stream, episode.query
        x = self.run(self.encoder, torch.cat([seen.x, asked.x], dim=1))
        known, query = x.split([len(seen), len(asked)], dim=1)
        start = self._start(episode.size, rng)
        end = self._adapted(start, known, self._target(start, seen))
        prediction = self._predict(end, query)
        score = self.head.scores(prediction.detach(), asked.targets)[self.head.metric].mean()
        parts = {self.head.metric: score, "rate": self.log_rate.detach().exp()}
        return Losses(self.head.loss(prediction, asked.targets), parts), end

    def _adapted(self, start: FastState, x: Float[Tensor, "b t d"], target: Tensor) -> FastState:
        return self._collapsed(start, self._steps(start, x, target))

    def _start(self, batch: int, rng: torch.Generator | None) -> FastState:
        """The initial fast weights, which all streams share, and each stream's codes."""
        layers = self.fast.start()
        if self.redraw and rng is not None:
            layers = (*layers[:-1], layers[-1].redrawn(rng))
        if self.codebook is None:
            return FastState(layers, None)
        return FastState(layers, self.codebook.draw(batch, rng=None if self.redraw else rng, device=self.device))

    def _target(self, state: FastState, examples: Examples) -> Tensor:
        if self.codebook is None:
            return examples.targets
        assert state.codes is not None
        return self.codebook.encode(state.codes, labels(examples))

    def _steps(self, state: FastState, x: Float[Tensor, "b t d"], target: Tensor) -> list[Steps]:
        fixed = self.decoder or nn.Identity()
        still = Still(fixed)

        def loss(layer: Layer, x: Tensor, target: Tensor) -> Tensor:
            # The head's mean over learners, times their number: each gets the gradient of its own loss
            return self.head.loss(self.answer(layer, still, x), target) * len(x)

        return descend(loss, state.layers, self.log_rate.exp(), x, target, tuple(fixed.parameters()))

    def _collapsed(self, state: FastState, steps: list[Steps]) -> FastState:
        rate = self.log_rate.exp()
        layers = tuple(new.collapse(old, rate) for old, new in zip(state.layers, steps, strict=True))
        return replace(state, layers=layers)

    def _predict(self, state: FastState, x: Float[Tensor, "b n d"]) -> Tensor:
        prediction = self.answer(lambda k, x: state.layers[k](x), self.run, x)
        if self.codebook is None:
            return prediction
        assert state.codes is not None
        return self.codebook.by_label(state.codes, prediction)


class OMLReptile(OML):
    """The initial fast weights follow those that streams end with, w <- w + pull * (mean of the ends - w); no gradient
    passes through an inner step (Nichol et al. 2018).

    The encoder learns from the queries alone, with the ends as constants. So does the inner rate (which never moves as
    published, SPEC D11), from W_T = W_0 - rate * sum_t g_t with each step's gradient g_t as a constant: it grows while
    the queries' gradient points the way that the steps went.
    """

    def __init__(self, *arguments: Any, pull: float = 0.1, **options: Any):
        super().__init__(*arguments, **options)
        self.pull = pull

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        losses, end = self._asked_after(episode, rng)
        return replace(losses, total=losses.total + self._displacement(end))

    def plain_descent(self) -> list[dict[str, Any]]:
        return [{"params": [w for w in self.fast.parameters() if w.requires_grad], "lr": self.pull}]

    def _adapted(self, start: FastState, x: Float[Tensor, "b t d"], target: Tensor) -> FastState:
        start, x = map_tensors(torch.Tensor.detach, start), x.detach()
        with torch.no_grad():
            steps = self._steps(start, x, target)
        return self._collapsed(start, steps)

    def _displacement(self, end: FastState) -> Float[Tensor, ""]:
        """Zero, with the gradient w - mean of the ends: plain descent on it is Reptile's step."""
        pairs = [
            (now, ends.detach().mean(dim=0))
            for linear, layer in zip(self.fast.linears, end.layers, strict=True)
            for now, ends in ((linear.weight, layer.weight), (linear.bias, layer.bias))
            if now.requires_grad
        ]
        away = torch.stack([(now * (now - to).detach()).sum() for now, to in pairs]).sum()
        return away - away.detach()
