"""A transformer's trunk: blocks of attention and feed-forward layers over tokens. It knows tokens, no examples."""

from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sbmcl.nets.attention import Heads, LinearKept, LinearSums, Memory, SoftmaxKept, features

Kind = Literal["softmax", "linear"]
Tokens = Float[Tensor, "b n w"]


class Block(nn.Module):
    """Attention, then a feed-forward layer with GELU, both residual.

    No layer norm is the published form. `norm` puts one in front of each of the two, and leaves the residual stream itself
    alone.
    """

    def __init__(self, width: int, heads: int, head_width: int, hidden: int, *, kind: Kind, dropout: float, norm: bool):
        super().__init__()
        self.heads, self.head_width, self.kind, self.dropout = heads, head_width, kind, dropout
        self.norm_attention = nn.LayerNorm(width) if norm else nn.Identity()
        self.qkv = nn.Linear(width, 3 * heads * head_width)
        self.project = nn.Linear(heads * head_width, width)
        self.norm_feed = nn.LayerNorm(width) if norm else nn.Identity()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def start(self, batch: int, dtype: torch.dtype, *, kept: bool) -> Memory:
        """Nothing remembered yet. `kept`: as keys and values even where sums would do."""
        like = self.qkv.weight.new_empty(batch, self.heads, 0, self.head_width, dtype=dtype)
        if self.kind == "softmax":
            return SoftmaxKept.empty(like)
        return LinearKept.empty(like) if kept else LinearSums.empty(like)

    def look(self, memory: Memory, h: Tokens) -> tuple[Tokens, Memory]:
        """Tokens in order: what becomes of them, and the memory that they leave."""
        q, k, v = self._heads(h)
        return self._finish(h, memory.look(q, k, v)), memory.write(k, v)

    def write(self, memory: Memory, h: Tokens) -> Memory:
        """Only the memory that they leave."""
        rows = slice(self.heads * self.head_width, None)
        k, v = self._split(F.linear(self.norm_attention(h), self.qkv.weight[rows], self.qkv.bias[rows]), 2)
        return memory.write(self._featured(k), v)

    def ask(self, memory: Memory, h: Tokens) -> tuple[Tokens, Heads]:
        """Tokens apart: what becomes of them, and their attention's queries."""
        q, k, v = self._heads(h)
        return self._finish(h, memory.ask(q, k, v)), q

    def _heads(self, h: Tokens) -> tuple[Heads, Heads, Heads]:
        q, k, v = self._split(self.qkv(self.norm_attention(h)), 3)
        return self._featured(q), self._featured(k), v

    def _split(self, h: Tokens, parts: int) -> list[Heads]:
        """Each part by head, in memory of its own: what is remembered must not hold on to the rest."""
        return [part.transpose(1, 2).contiguous() for part in h.unflatten(-1, (parts, self.heads, -1)).unbind(2)]

    def _featured(self, u: Heads) -> Heads:
        return features(u) if self.kind == "linear" else u

    def _finish(self, h: Tokens, seen: Heads) -> Tokens:
        h = h + self._drop(self.project(seen.transpose(1, 2).flatten(2)))
        return h + self._drop(self.down(F.gelu(self.up(self.norm_feed(h)))))

    def _drop(self, h: Tokens) -> Tokens:
        return F.dropout(h, self.dropout, self.training)


class Trunk(nn.Module):
    """All blocks. In the last one nothing looks at the stream's own tokens, so there they are only written down."""

    def __init__(
        self,
        width: int = 512,
        *,
        layers: int = 4,
        heads: int = 8,
        head_width: int = 64,
        hidden: int = 1024,
        kind: Kind = "softmax",
        dropout: float = 0.1,
        norm: bool = False,
    ):
        super().__init__()
        self.width, self.head_width = width, head_width
        self.blocks = nn.ModuleList(
            Block(width, heads, head_width, hidden, kind=kind, dropout=dropout, norm=norm) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()

    def start(self, batch: int, dtype: torch.dtype, *, kept: bool = False) -> tuple[Memory, ...]:
        return tuple(block.start(batch, dtype, kept=kept) for block in self._blocks())

    def look(self, memories: tuple[Memory, ...], h: Tokens) -> tuple[Memory, ...]:
        """What every layer remembers once these tokens, in order, are learned."""
        *blocks, last = self._blocks()
        after = []
        for block, memory in zip(blocks, memories[:-1], strict=True):
            h, memory = block.look(memory, h)
            after.append(memory)
        return (*after, last.write(memories[-1], h))

    def ask(self, memories: tuple[Memory, ...], h: Tokens) -> tuple[Tokens, list[Heads]]:
        """The hidden states of tokens that each come next and alone, and the queries that every layer made of them."""
        queries = []
        for block, memory in zip(self._blocks(), memories, strict=True):
            h, q = block.ask(memory, h)
            queries.append(q)
        return self.norm(h), queries

    def _blocks(self) -> list[Block]:
        return [cast(Block, block) for block in self.blocks]


def positions(place: Int[Tensor, "n"], width: int, dtype: torch.dtype) -> Float[Tensor, "n w"]:
    """Sinusoids of any place: sin and cos of place / 10000^(2 i / width), interleaved (Vaswani et al. 2017)."""
    rate = 10_000 ** -(torch.arange(0, width, 2, device=place.device, dtype=torch.float64) / width)
    angle = place.unsqueeze(-1) * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(dtype)
