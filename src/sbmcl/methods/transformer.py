"""Transformers as continual learners: the stream is a sequence of tokens, and what is learned is what attention remembers.

Softmax attention keeps all keys and values; linear attention two sums of fixed size. Which memory it is, and what
is asked for, is decided by the networks and the head that are passed in; to try another trunk or target, start there.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sbmcl.episode import Episode, Examples
from sbmcl.heads import Head
from sbmcl.methods.base import Losses, Method
from sbmcl.methods.codes import Codebook, labels
from sbmcl.nets.attention import Heads, Kept, Memory
from sbmcl.nets.transformer import Tokens, Trunk, positions
from sbmcl.state import state


@state
class Context:
    """All that is left of a stream."""

    memories: tuple[Memory, ...]  # one a layer
    length: Int[Tensor, ""]  # tokens so far, two an example
    codes: Int[Tensor, "b v"] | None  # where labels are asked for


class Transformer(Method[Context]):
    """Tokens x_1, y_1, ..., x_T, y_T at places 0, 1, ..., and every query x at place 2T, as if it alone came next.

    With a `vocabulary`, labels are read and answered as codes drawn for each stream; `y_encoder` is then their embedding.

    For the first `guided` steps of meta-training the loss has a part that teaches queries to look at examples of their
    own task, in the first half of the heads of every layer:

        - sum_layers mean_{heads, queries} log( share of the attention to the stream that the query's own task gets )

    with the share taken without the query itself. It needs task labels, which nothing else here reads.
    """

    def __init__(
        self,
        trunk: Trunk,
        x_encoder: nn.Module,
        y_encoder: nn.Module,
        output: nn.Module,
        head: Head,
        *,
        vocabulary: int | None = None,
        guided: int = 0,
    ):
        super().__init__()
        self.trunk, self.x_encoder, self.y_encoder, self.output = trunk, x_encoder, y_encoder, output
        self.head = head
        self.codebook = None if vocabulary is None else Codebook(vocabulary)
        self.guided = guided

    @property
    def gains_from_bf16(self) -> bool:
        return True  # nearly all of its time goes into large matrix products

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> Context:
        return self._start(batch, rng)

    def learn(self, state: Context, examples: Examples) -> Context:
        return self._learn(state, self.run(self.x_encoder, examples.x), examples)

    def predict(
        self, state: Context, x: Float[Tensor, "b n *x"], *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n *y"]:
        return self._answer(state, self.run(self.x_encoder, x))[0]

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        seen, asked = episode.stream, episode.query
        x = self.run(self.x_encoder, torch.cat([seen.x, asked.x], dim=1))
        known, query = x.split([len(seen), len(asked)], dim=1)
        guided = self.meta_step is not None and self.meta_step < self.guided
        # Sums are the cheaper memory only of streams longer than they are wide, and cannot say who was looked at
        kept = guided or 2 * len(seen) <= self.trunk.head_width
        start = self._start(episode.size, rng, kept=kept)
        context = self._learn(start, known, seen)
        prediction, queries = self._answer(context, query)
        loss = self.head.loss(prediction, asked.targets)
        score = self.head.scores(prediction.detach(), asked.targets)[self.head.metric].mean()
        parts = {self.head.metric: score}
        if guided:
            attention = _attention_loss(context.memories, queries, seen.task, asked.task)
            parts["attention"] = attention.detach()
            loss = loss + attention
        return Losses(loss, parts)

    def _start(self, batch: int, rng: torch.Generator | None, *, kept: bool = False) -> Context:
        codes = None if self.codebook is None else self.codebook.draw(batch, rng=rng, device=self.device)
        memories = self.trunk.start(batch, torch.bfloat16 if self.bf16 else self.dtype, kept=kept)
        return Context(memories, torch.zeros((), dtype=torch.long, device=self.device), codes)

    def _learn(self, context: Context, x: Tokens, examples: Examples) -> Context:
        tokens = torch.stack([x, self._targets(context, examples)], dim=2).flatten(1, 2)
        place = context.length + torch.arange(tokens.shape[1], device=x.device)
        tokens = tokens + positions(place, x.shape[-1], x.dtype)
        with self._autocast(x.device.type):
            memories = self.trunk.look(context.memories, tokens)
        return replace(context, memories=memories, length=context.length + len(place))

    def _targets(self, context: Context, examples: Examples) -> Tokens:
        """The y tokens of examples."""
        if self.codebook is None:
            return self.run(self.y_encoder, examples.targets)
        assert context.codes is not None
        return self.y_encoder(self.codebook.encode(context.codes, labels(examples)))

    def _answer(self, context: Context, x: Tokens) -> tuple[Tensor, list[Heads]]:
        """Predictions, and the queries that every layer's attention made of x."""
        tokens = x + positions(context.length.view(1), x.shape[-1], x.dtype)
        with self._autocast(x.device.type):
            hidden, queries = self.trunk.ask(context.memories, tokens)
        out = self.output(hidden.to(x.dtype))
        if self.codebook is None:
            return out, queries
        assert context.codes is not None
        return self.codebook.by_label(context.codes, out), queries


def _attention_loss(
    memories: tuple[Memory, ...], queries: list[Heads], stream: Int[Tensor, "b t"], asked: Int[Tensor, "b n"]
) -> Float[Tensor, ""]:
    same = (stream.repeat_interleave(2, dim=1).unsqueeze(1) == asked.unsqueeze(2)).unsqueeze(1)
    loss = torch.zeros((), device=stream.device)
    for memory, q in zip(memories, queries, strict=True):
        assert isinstance(memory, Kept), "only a memory that keeps all tokens can tell who was looked at"
        share = (memory.weights(q[:, : max(1, q.shape[1] // 2)]) * same).sum(-1)
        loss = loss - (share + 1e-9).log().mean()
    return loss
