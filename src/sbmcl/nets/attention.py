"""Attention over a stream, softmax and linear: what one layer remembers of the tokens so far, and how it is looked at.

A memory is an immutable state with three operations: `look` (tokens in order, each sees what came before it and itself),
`write`, and `ask` (tokens apart, each sees what is remembered and itself). It knows queries, keys and values, no episodes.
"""

from abc import ABC, abstractmethod
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sbmcl.state import state

Heads = Float[Tensor, "b h n d"]
Seen = Float[Tensor, "b h t d"]

ROWS = 256  # tokens that look at a long memory at once, so that their mask stays a thin strip
PLAIN = 1_024  # keys up to which all scores may be held at once


class Memory(ABC):
    """What one layer remembers of the tokens so far, in `h` heads."""

    @abstractmethod
    def look(self, q: Heads, k: Heads, v: Heads) -> Heads:
        """What tokens in order see: everything remembered, the tokens of this call before them, and themselves."""

    @abstractmethod
    def write(self, k: Heads, v: Heads) -> Self:
        """What is remembered once these tokens are, too."""

    @abstractmethod
    def ask(self, q: Heads, k: Heads, v: Heads) -> Heads:
        """What tokens see, each as if it came next and alone: everything remembered, and itself."""


@state
class Kept(Memory):
    """All keys and values so far; grows with the stream."""

    keys: Seen
    values: Seen

    @classmethod
    def empty(cls, like: Heads) -> Self:
        """Nothing remembered yet, by heads of the same number and width as those of these tokens."""
        return cls(like[:, :, :0], like[:, :, :0])

    def write(self, k: Heads, v: Heads) -> Self:
        if not self.keys.shape[2]:
            return type(self)(k, v)
        return type(self)(torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2))

    @abstractmethod
    def weights(self, q: Heads) -> Float[Tensor, "b h n t"]:
        """How queries share their attention out over the tokens remembered, themselves left out; rows sum to 1.

        `q` may have fewer heads than there are; they are the first ones.
        """


@state
class SoftmaxKept(Kept):
    """The key-value cache of a transformer: the weight of token t is proportional to exp(q . k_t / sqrt(d))."""

    def look(self, q: Heads, k: Heads, v: Heads) -> Heads:
        if not self.keys.shape[2]:
            return _softmax_attention(q, k, v)
        seen, parts = self, []
        for q_part, k_part, v_part in _strips(q, k, v):
            seen = seen.write(k_part, v_part)
            own = torch.ones(2 * q_part.shape[2:3], dtype=torch.bool, device=q.device).tril()
            parts.append(_softmax_attention(q_part, seen.keys, seen.values, own))
        return torch.cat(parts, dim=2)

    def ask(self, q: Heads, k: Heads, v: Heads) -> Heads:
        parts = []
        for q_part, k_part, v_part in _strips(q, k, v):
            seen = self.write(k_part, v_part)
            own = torch.eye(q_part.shape[2], dtype=torch.bool, device=q.device)
            parts.append(_softmax_attention(q_part, seen.keys, seen.values, own))
        return torch.cat(parts, dim=2)

    def weights(self, q: Heads) -> Float[Tensor, "b h n t"]:
        return _wide(q * q.shape[-1] ** -0.5 @ self.keys[:, : q.shape[1]].mT).softmax(-1)


@state
class LinearKept(Kept):
    """The weight of token t is proportional to q . k_t, both positive features: the direct form of `LinearSums`.

    Cheaper than sums as long as the tokens are fewer than a head is wide, and the only form whose weights can be told.
    """

    def look(self, q: Heads, k: Heads, v: Heads) -> Heads:
        seen = _causal(q, k, v)
        if self.keys.shape[2]:
            seen = _added(seen, _direct(q @ self.keys.mT, self.values))
        return _ratio(*seen)

    def ask(self, q: Heads, k: Heads, v: Heads) -> Heads:
        return _ratio(*_added(_itself(q, k, v), _direct(q @ self.keys.mT, self.values)))

    def weights(self, q: Heads) -> Float[Tensor, "b h n t"]:
        weights = _wide(q @ self.keys[:, : q.shape[1]].mT)
        return weights / weights.sum(-1, keepdim=True).clamp_min(FLOOR)


@state
class LinearSums(Memory):
    """Linear attention with a memory of fixed size (Katharopoulos et al. 2020): two sums over the tokens so far,

        out(q) = q S / q . c,     S = sum_t k_t v_t^T,     c = sum_t k_t

    with features phi(u) = elu(u) + 1 of keys and queries already taken. Sums are kept in float32 at least.
    """

    pairs: Float[Tensor, "b h d e"]  # S
    total: Float[Tensor, "b h d"]  # c

    @classmethod
    def empty(cls, like: Heads) -> Self:
        """Nothing remembered yet, by heads of the same number and width as those of these tokens."""
        b, h, _, d = like.shape
        return cls(_wide(like.new_zeros(b, h, d, d)), _wide(like.new_zeros(b, h, d)))

    def look(self, q: Heads, k: Heads, v: Heads) -> Heads:
        return _ratio(*_added(_causal(q, k, v), self._read(q)))

    def write(self, k: Heads, v: Heads) -> Self:
        pairs, total = _sums(k, v)
        return type(self)(self.pairs + pairs, self.total + total)

    def ask(self, q: Heads, k: Heads, v: Heads) -> Heads:
        return _ratio(*_added(_itself(q, k, v), self._read(q)))

    def _read(self, q: Heads) -> "Fraction":
        return q @ self.pairs, q @ self.total.unsqueeze(-1)


def features(u: Tensor) -> Tensor:
    """phi(u) = u + 1 above zero and exp(u) below."""
    return F.elu(u) + 1


Fraction = tuple[Float[Tensor, "b h *n d"], Float[Tensor, "b h *n 1"]]  # weighted sum of values, sum of the weights
FLOOR = 1e-6  # of a sum of weights; only features that have all underflowed come near it


def _direct(weights: Float[Tensor, "b h *n t"], v: Float[Tensor, "b h *t d"]) -> Fraction:
    return weights @ v, weights.sum(-1, keepdim=True, dtype=_wide_type(weights))


def _itself(q: Heads, k: Heads, v: Heads) -> Fraction:
    weight = (q * k).sum(-1, keepdim=True, dtype=_wide_type(q))
    return weight.to(v.dtype) * v, weight


def _causal(q: Heads, k: Heads, v: Heads) -> Fraction:
    """Each token and those before it: directly within a block, through running sums from one block to the next.

    Blocks about as long as a head is wide make the sums between them no larger than the keys and values themselves.
    """
    n = q.shape[2]
    blocks = -(-n // max(64, q.shape[3]))
    if blocks <= 1:
        return _direct((q @ k.mT).tril(), v)
    size = -(-n // blocks)
    q, k, v = (F.pad(t, (0, 0, 0, blocks * size - n)).unflatten(2, (blocks, size)) for t in (q, k, v))
    values, weights = _direct((q @ k.mT).tril(), v)
    pairs, total = _sums(k[:, :, :-1], v[:, :, :-1])
    later = q[:, :, 1:]
    values = values + F.pad(later @ pairs.cumsum(2), (0, 0, 0, 0, 1, 0))
    weights = weights + F.pad(later @ total.cumsum(2).unsqueeze(-1), (0, 0, 0, 0, 1, 0))
    return values.flatten(2, 3)[:, :, :n], weights.flatten(2, 3)[:, :, :n]


def _sums(k: Float[Tensor, "b h *m n d"], v: Float[Tensor, "b h *m n e"]) -> tuple[Tensor, Tensor]:
    """sum k v^T and sum k, in float32 whatever the networks run in: rounding would add up over a long stream."""
    with torch.autocast(k.device.type, enabled=False):
        k, v = _wide(k), _wide(v)
        return k.mT @ v, k.sum(-2)


def _added(one: Fraction, other: Fraction) -> Fraction:
    return one[0] + other[0], one[1] + other[1]


def _ratio(values: Tensor, weight: Tensor) -> Heads:
    return values / weight.clamp_min(FLOOR).to(values.dtype)


def _strips(*tensors: Heads) -> list[tuple[Tensor, ...]]:
    return list(zip(*(t.split(ROWS, dim=2) for t in tensors), strict=True))


def _softmax_attention(q: Heads, k: Seen, v: Seen, own: Bool[Tensor, "n n"] | None = None) -> Heads:
    """Queries see all keys but, of the last n, only what `own` lets them; None: n keys in all, each those up to it.

    The kernel's gradients are slow on CPUs for streams as short as those that are trained on; the plain form's are not.
    """
    n, t = q.shape[2], k.shape[2]
    if q.is_cpu and torch.is_grad_enabled() and t <= PLAIN:
        return _plain_attention(q, k, v, own)
    if own is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=F.pad(own, (t - n, 0), value=True))


def _plain_attention(q: Heads, k: Seen, v: Seen, own: Bool[Tensor, "n n"] | None) -> Heads:
    b, h, n, d = q.shape
    own = torch.ones(n, n, dtype=torch.bool, device=q.device).tril() if own is None else own
    hidden = torch.zeros(n, n, dtype=q.dtype, device=q.device).masked_fill(~own, float("-inf"))
    bias = F.pad(hidden, (k.shape[2] - n, 0)).expand(b * h, -1, -1)
    scores = torch.baddbmm(bias, (q * d**-0.5).flatten(0, 1), k.flatten(0, 1).mT)
    return (scores.softmax(-1) @ v.flatten(0, 1)).unflatten(0, (b, h))


def _wide_type(t: Tensor) -> torch.dtype:
    return torch.promote_types(t.dtype, torch.float32)


def _wide(t: Tensor) -> Tensor:
    return t.to(_wide_type(t))
