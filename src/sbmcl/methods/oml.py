"""OML and OML-Reptile: every example is one step of gradient descent on a small network with meta-learned initial
weights.

The encoder stands still while a stream is learned; the state is the fast weights behind it, fixed in size, and the
label codes of a classifier (Javed and White 2019). What the fast layers give becomes a prediction in
`OML.answer`: another model of them, with parts between or after, overrides that method (and `embed`, where more than an
encoder goes before), since the loss of an inner step is the head's loss of that prediction and its gradient is taken
through whatever it went through.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sbmcl.episode import Episode, Examples
from sbmcl.heads import DiffusionHead, Head
from sbmcl.methods.base import Losses, Method, answers
from sbmcl.methods.codes import Codebook, labels
from sbmcl.methods.generative import Generative, Model, OfDDPM, OfVAE, Questions
from sbmcl.nets.fast import FastMLP, FastVAE, FastWeights, Layer, Steps, Still, descend
from sbmcl.nets.fast_unet import FastUNet
from sbmcl.nets.vae import Reconstruction
from sbmcl.state import map_tensors, state

Run = Callable[..., Any]
Embedded = tuple[Tensor, ...]
BLOCK = 128  # examples between two collapses of a stream's steps into weights; any number gives the same state


@state
class FastState:
    layers: tuple[FastWeights, ...]
    codes: Int[Tensor, "b v"] | None  # of a classifier: which output stands for which label
    questions: Questions | None = None  # where what is asked of an example is random


class OML(Method[FastState]):
    """The outer loop differentiates the queries' loss through all inner steps, in the encoder, the initial fast weights
    and the inner rate, one logarithm for all layers.

    A classifier has an output for each of `classes` codes. Its last layer is meta-learned and labels get new codes in
    every stream; with `redraw` they do not, and the last layer starts anew from random weights instead, as published
    (deviation D10). `decoder` makes a prediction of the last layer's output; the inner steps pass through it and leave it
    alone. Its batch-norms stand still in them, in meta-training as in a stream (published, they do so in a stream alone,
    deviation D17); they move with the queries.
    """

    def __init__(
        self,
        encoder: nn.Module,
        fast: FastMLP | FastVAE | FastUNet,
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
            assert isinstance(fast, FastMLP), "only a classifier's last layer is drawn anew"
            fast.last.requires_grad_(False)

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> FastState:
        start = self._start(batch, rng)
        return replace(start, layers=tuple(layer.for_each(batch) for layer in start.layers))

    def learn(self, state: FastState, examples: Examples) -> FastState:
        asked, target, state = self._asked(state, examples)
        for first in range(0, len(examples), BLOCK):
            part, right = map_tensors(lambda t, first=first: t[:, first : first + BLOCK], (asked, target))
            state = self._collapsed(state, self._steps(state, self.embed(*part), right, self.head))
        return state

    def predict(
        self, state: FastState, x: Float[Tensor, "b n *x"], *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Any:
        return self._predict(state, self.embed(x))

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        return self._asked_after(episode, rng)[0]

    def embed(self, x: Float[Tensor, "b n *x"], *given: Tensor) -> Embedded:
        """What the fast layers and all that comes after them read; layer 0 reads the first part of it, and alone does."""
        return self.run(self.encoder, x), *given

    def answer(self, layer: Layer, run: Run, x: Float[Tensor, "b n d"]) -> Any:
        """The prediction for embedded inputs, with the fast layers as they are at this moment.

        `run` takes a fixed network and its inputs, as `Method.run` does; in an inner step the network stands still.
        """
        out = cast(FastMLP, self.fast).through(layer, x)
        return out if self.decoder is None else run(self.decoder, out)

    @property
    def fixed(self) -> nn.Module:
        """What the fast layers' output goes through in `answer`; the inner steps leave it alone."""
        return self.decoder or nn.Identity()

    def fixed_weights(self) -> list[nn.Parameter]:
        return list(self.fixed.parameters())

    def _asked_after(self, episode: Episode, rng: torch.Generator | None) -> tuple[Losses, FastState]:
        """The loss of the queries after the stream, and the state they were asked in."""
        seen, queries, head = episode.stream, episode.query, self.head.at(self.meta_step)
        inputs, target, start = self._asked(self._start(episode.size, rng), seen)
        asked, right = head.ask(queries.x, answers(queries), rng)
        both = self.embed(*(torch.cat(pair, dim=1) for pair in zip(inputs, asked, strict=True)))
        known, query = (tuple(part[:, span] for part in both) for span in (slice(len(seen)), slice(len(seen), None)))
        end = self._adapted(start, known, target, head)
        prediction = self._predict(end, query)
        score = head.scores(map_tensors(torch.Tensor.detach, prediction), right)[head.metric].mean()
        parts = {head.metric: score, "rate": self.log_rate.detach().exp()}
        return Losses(head.loss(prediction, right), parts), end

    def _adapted(self, start: FastState, given: Embedded, target: Tensor, head: Head) -> FastState:
        return self._collapsed(start, self._steps(start, given, target, head))

    def _start(self, batch: int, rng: torch.Generator | None) -> FastState:
        """The initial fast weights, which all streams share, and each stream's codes."""
        layers = self.fast.start()
        if self.redraw and rng is not None:
            layers = (*layers[:-1], layers[-1].redrawn(rng))
        if self.codebook is None:
            return FastState(layers, None)
        return FastState(layers, self.codebook.draw(batch, rng=None if self.redraw else rng, device=self.device))

    def _asked(self, state: FastState, examples: Examples) -> tuple[tuple[Tensor, ...], Tensor, FastState]:
        """What is given of examples and what they are to teach, where nothing about that is random."""
        if self.codebook is None:
            return (examples.x,), examples.targets, state
        assert state.codes is not None
        return (examples.x,), self.codebook.encode(state.codes, labels(examples)), state

    def _steps(self, state: FastState, given: Embedded, target: Tensor, head: Head) -> list[Steps]:
        still = Still(self.fixed)

        def loss(layer: Layer, x: Tensor, rest: tuple[Embedded, Tensor]) -> Tensor:
            others, target = rest
            # The head's mean over learners, times their number: each gets the gradient of its own loss
            return head.loss(self.answer(layer, still, x, *others), target) * len(x)

        x, *others = given
        return descend(loss, state.layers, self.log_rate.exp(), x, (tuple(others), target), self.fixed_weights())

    def _collapsed(self, state: FastState, steps: list[Steps]) -> FastState:
        rate = self.log_rate.exp()
        layers = tuple(new.collapse(old, rate) for old, new in zip(state.layers, steps, strict=True))
        return replace(state, layers=layers)

    def _predict(self, state: FastState, given: Embedded) -> Any:
        prediction = self.answer(lambda k, x: state.layers[k](x), self.run, *given)
        if self.codebook is None:
            return prediction
        assert state.codes is not None
        return self.codebook.by_label(state.codes, prediction)


class OMLReptile(OML):
    """The initial fast weights follow those that streams end with, w <- w + pull * (mean of the ends - w); no gradient
    passes through an inner step (Nichol et al. 2018).

    The encoder learns from the queries alone, with the ends as constants. So does the inner rate (which never moves as
    published, deviation D11), from W_T = W_0 - rate * sum_t g_t with each step's gradient g_t as a constant: it grows while
    the queries' gradient points the way that the steps went.
    """

    def __init__(self, *arguments: Any, pull: float = 0.1, **options: Any):
        super().__init__(*arguments, **options)
        self.pull = pull

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        losses, end = self._asked_after(episode, rng)
        return replace(losses, total=losses.total + self._displacement(end))

    def plain_descent(self) -> list[dict[str, Any]]:
        return [{"params": [w for w in self.fast.weights() if w.requires_grad], "lr": self.pull}]

    def _adapted(self, start: FastState, given: Embedded, target: Tensor, head: Head) -> FastState:
        start, given = map_tensors(torch.Tensor.detach, (start, given))
        with torch.no_grad():
            steps = self._steps(start, given, target, head)
        return self._collapsed(start, steps)

    def _displacement(self, end: FastState) -> Float[Tensor, ""]:
        """Zero, with the gradient w - mean of the ends: plain descent on it is Reptile's step."""
        pairs = [
            (now, ends.detach().mean(dim=0))
            for start, layer in zip(self.fast.start(), end.layers, strict=True)
            for now, ends in ((start.weight, layer.weight), (start.bias, layer.bias))
            if now.requires_grad
        ]
        away = torch.stack([(now * (now - to).detach()).sum() for now, to in pairs]).sum()
        return away - away.detach()


class GenerativeOML(Generative[FastState], OML):
    """There is no y; the model is the one of the adapted weights. What is asked of an example is drawn once, from a seed
    that belongs to its stream."""

    def models(
        self,
        state: FastState,
        n: int,
        *,
        rng: torch.Generator | None,
        at_mode: bool = False,
        draws: int | None = None,
    ) -> list[Model]:
        return [Model(len(state.layers[0].bias), partial(self.reply, state), partial(self.decode, state))]

    def reply(self, state: FastState, x: Tensor, *given: Tensor) -> Any:
        """To a question of the head, which has `code(x)` in place of x."""
        return self._predict(state, self.embed(x, *given))

    def decode(self, state: FastState, u: Float[Tensor, "b n u"]) -> Tensor:
        raise NotImplementedError("only auto-encoders have latents to decode")

    def _start(self, batch: int, rng: torch.Generator | None) -> FastState:
        return replace(super()._start(batch, rng), questions=Questions.of(batch, rng, self.device))

    def _asked(self, state: FastState, examples: Examples) -> tuple[tuple[Tensor, ...], Tensor, FastState]:
        assert state.questions is not None
        (inputs, target), later = state.questions.ask_each(self.head, examples.x)
        return inputs, target, replace(state, questions=later)


class OMLVAE(OfVAE[FastState], GenerativeOML):
    """A variational auto-encoder with fast layers behind its encoder and in front of its decoder."""

    fast: FastVAE
    decoder: nn.Module

    def code(self, x: Float[Tensor, "b n c h w"]) -> Float[Tensor, "b n d"]:
        return self.embed(x)[0]

    def reply(self, state: FastState, x: Float[Tensor, "b n d"], *given: Tensor) -> Reconstruction:
        return self._predict(state, (x, *given))

    def answer(
        self, layer: Layer, run: Run, x: Float[Tensor, "b n d"], noise: Float[Tensor, "b n u"]
    ) -> Reconstruction:
        mean, log_variance = self.fast.infer(layer, x).chunk(2, -1)
        u = mean + (log_variance / 2).exp() * noise
        return Reconstruction(run(self.decoder, self.fast.decode(layer, u)), mean, log_variance)

    def decode(self, state: FastState, u: Float[Tensor, "b n u"]) -> Float[Tensor, "b n c h w"]:
        """Through the adapted layers; the reference leaves them out (deviation D13)."""
        return self.run(self.decoder, self.fast.decode(lambda k, x: state.layers[k](x), u))


class OMLReptileVAE(OMLReptile, OMLVAE):
    """The same, its initial weights following those that streams end with."""


class OMLDDPM(OfDDPM[FastState], GenerativeOML):
    """A diffusion model whose fast layers are at the bottleneck of its U-Net; its pictures have `shape`.

    Norms and attention are those of every other method's U-Net, and nothing is dropped while a stream is learned or asked
    about (deviation D12).
    """

    fast: FastUNet

    def __init__(self, fast: FastUNet, head: DiffusionHead, shape: tuple[int, ...], **options: Any):
        super().__init__(nn.Identity(), fast, head, **options)
        self.shape = shape

    def embed(self, x: Float[Tensor, "b n c h w"], t: Int[Tensor, "b n"]) -> Embedded:
        """The way down, which no fast layer changes; the code of the time twice, since layer 0 reads its own."""
        bottom, skips, time = self.run(self.fast.unet.descend, x, t)
        return time, time, bottom, *skips

    def answer(self, layer: Layer, run: Run, x: Tensor, *others: Tensor) -> Float[Tensor, "b n c h w"]:
        return self.fast.through(layer, run, x, *others)

    @property
    def fixed(self) -> nn.Module:
        return self.fast.unet

    def fixed_weights(self) -> list[nn.Parameter]:
        return self.fast.fixed_weights()


class OMLReptileDDPM(OMLReptile, OMLDDPM):
    """The same, its initial weights following those that streams end with."""
