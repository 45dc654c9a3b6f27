"""What a stream of drawn characters teaches, looked at as it goes by. It knows methods and episodes, nothing of how its
numbers are shown."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sbmcl.demo.diary import of_task
from sbmcl.episode import Episode
from sbmcl.heads.classes import auroc
from sbmcl.methods.conjugate import ClassConjugate
from sbmcl.state import map_tensors


@dataclass(frozen=True)
class Characters:
    """A stream of `c` characters, each learned from `s` drawings, and `q` other drawings of each asked about."""

    drawn: Float[Tensor, "c s h w"]  # ink, from 0 to 1
    asked: Float[Tensor, "c q h w"]
    taken_for: list[list[int]]  # the answer to every query at the end of the stream
    right: list[list[float]]  # row t: the share of right answers about each character learned so far, when t + 1 are
    novel: list[float]  # entry t: how often a character still to come looks newer than a learned one, when t + 1 are


@torch.no_grad()
def watch(method: ClassConjugate[Any], episode: Episode) -> Characters:
    stream, query = episode.stream, episode.query
    tasks = int(stream.task.max()) + 1
    state, right, novel = method.init(1), [], []
    for task in range(tasks):
        state = method.learn(state, of_task(stream, task))
        met = query.task[0] <= task
        wrong = method.score(state, map_tensors(lambda t, met=met: t[:, met], query))["error"]
        right.append((1 - wrong.view(task + 1, -1).mean(1)).tolist())
        novelty = method.novelty(state, query.x)[0]
        if task + 1 < tasks:
            novel.append(auroc(novelty[met], novelty[~met]))
    answers = method.predict(state, query.x).argmax(-1).view(tasks, -1).tolist()
    return Characters(_ink(stream.x, tasks), _ink(query.x, tasks), answers, right, novel)


def _ink(x: Float[Tensor, "1 n 1 h w"], tasks: int) -> Float[Tensor, "c s h w"]:
    return ((1 - x[0, :, 0]) / 2).clamp(0, 1).unflatten(0, (tasks, -1))
