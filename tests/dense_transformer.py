"""The oracle of the transformers: the whole episode as one sequence, all attention weights as one matrix under one mask.

Slow, quadratic and plain on purpose; it shares nothing with the library but the weights of the method it is given.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sbmcl.episode import Episode


def dense_prediction(method: Any, episode: Episode, codes: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """Predictions for all queries (of a classifier: scores of codes), and what every layer made of them and the stream's
    tokens, `b h n t`: logits of softmax attention, unnormalised weights of linear attention."""
    seen, asked = episode.stream, episode.query
    batch, length, queries = len(seen.x), len(seen), len(asked)
    x = encoded(method.x_encoder, torch.cat([seen.x, asked.x], dim=1))
    y = encoded(method.y_encoder, seen.targets) if codes is None else method.y_encoder(codes.gather(1, seen.targets))
    tokens = torch.stack([x[:, :length], y], dim=2).reshape(batch, 2 * length, -1)
    places = [*range(2 * length), *[2 * length] * queries]
    h = torch.cat([tokens, x[:, length:]], dim=1) + sinusoids(places, x.shape[-1]).to(x)

    mask = torch.zeros(len(places), len(places), dtype=torch.bool)
    mask[: 2 * length, : 2 * length] = torch.ones(2 * length, 2 * length).tril().bool()
    mask[2 * length :, : 2 * length] = True
    mask[2 * length :, 2 * length :] = torch.eye(queries).bool()
    looks = []
    for block in method.trunk.blocks:
        h, scores = dense_block(block, h, mask)
        looks.append(scores[:, :, 2 * length :, : 2 * length])
    return method.output(method.trunk.norm(h[:, 2 * length :])), looks


def dense_block(block: Any, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    normed = block.norm_attention(h)
    q, k, v = (heads(part, block.heads) for part in block.qkv(normed).chunk(3, dim=-1))
    if block.kind == "softmax":
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    else:
        q, k = (torch.where(u > 0, u + 1, u.clamp(max=0).exp()) for u in (q, k))
        scores = q @ k.transpose(-1, -2)
        weights = scores * mask
        weights = weights / weights.sum(-1, keepdim=True)
    seen = (weights @ v).transpose(1, 2).flatten(2)
    h = h + F.dropout(block.project(seen), block.dropout, block.training)
    fed = block.down(F.gelu(block.up(block.norm_feed(h))))
    return h + F.dropout(fed, block.dropout, block.training), scores


def encoded(network: Any, values: Tensor) -> Tensor:
    return network(values.flatten(0, 1)).unflatten(0, values.shape[:2])


def heads(values: Tensor, count: int) -> Tensor:
    return values.reshape(*values.shape[:2], count, -1).transpose(1, 2)


def sinusoids(places: list[int], width: int) -> Tensor:
    table = [
        [(math.cos if i % 2 else math.sin)(place / 10_000 ** ((i - i % 2) / width)) for i in range(width)]
        for place in places
    ]
    return torch.tensor(table, dtype=torch.float64)
