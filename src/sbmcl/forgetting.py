"""What a method still knows of a task when others have followed. It names no method and no data set.

Everything is read off one matrix: R[i, j] is the score on the queries of task j after tasks 0..i (every score is a loss).

    forgetting         mean over j < K-1 of  R[K-1, j] - R[j, j]       positive where later tasks did harm
    backward transfer  its negative (Lopez-Paz and Ranzato 2017)

A classifier is also asked among more answers at the end than right after a task, which costs even one that loses nothing.
So classification has a second matrix, of answers among the classes that were known right after task j at whatever time it
is asked; what is forgotten there (`forgetting_same_answers`) is knowledge and nothing else.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sbmcl.episode import Episode, Examples
from sbmcl.evaluate import Asked, Measure, Trained, learn_in_chunks, questions
from sbmcl.heads import ClassHead
from sbmcl.methods.base import Method
from sbmcl.results import AVERAGE, FINAL, LEARNED, Row, mean_and_spread

Matrix = Float[Tensor, "b k k"]
"""One for each episode; the part above the diagonal, tasks not learned yet, is not a number."""


def forgetting(
    trained: Trained,
    pair: tuple[int, int] = (10, 10),
    *,
    episodes: int | None = None,
    at_mode: bool = False,
    on: str | None = None,
    split: Asked = "test",
) -> list[Row]:
    """Ask about all tasks so far after every task of so many streams."""
    if pair[0] < 2:
        raise ValueError(f"forgetting takes at least 2 tasks, but got {pair[0]}")
    (asked,) = questions(trained, [pair], on=on, split=split)
    count = episodes or trained.experiment.method.default_episodes
    measure, parts = Measure(trained, asked), []
    for episode, rng in asked.draw(count, measure.state_bytes, trained.device):
        parts.append(matrices(trained.method, episode, rng, at_mode=at_mode))
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return rows(whole, measure.row(count, at_mode=at_mode))


@torch.no_grad()
def matrices(
    method: Method[Any], episode: Episode, rng: torch.Generator, *, at_mode: bool = False
) -> dict[str, Matrix]:
    """`forgetting` and, for classes, `forgetting_same_answers`: what those figures are read off."""
    state = method.init(episode.size, rng=rng)
    same_luck = rng.get_state()
    ends, tasks = ends_of_tasks(episode.stream), episode.query.task[0]
    known = known_by_task(episode.stream) if isinstance(method.head, ClassHead) else None
    found: dict[str, list[Tensor]] = {}
    for i, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        state = learn_in_chunks(method, state, episode.stream[begin:end])
        rng.set_state(same_luck)
        so_far = tasks <= i
        queries = Examples(
            episode.query.x[:, so_far],
            None if episode.query.y is None else episode.query.y[:, so_far],
            episode.query.task[:, so_far],
        )
        for name, score in _asked(method, state, queries, known, rng, at_mode).items():
            by_task = [score[:, tasks[so_far] == j].mean(1) for j in range(i + 1)]
            later = [torch.full_like(by_task[0], torch.nan)] * (len(ends) - i - 1)
            found.setdefault(name, []).append(torch.stack(by_task + later, dim=1))
    return {name: torch.stack(after, dim=1).double().cpu() for name, after in found.items()}


def ends_of_tasks(stream: Examples) -> list[int]:
    """How much of the stream has come when each task is over; tasks are numbered in the order in which they end."""
    task = stream.task[0].tolist()
    ends = [len(task) - task[::-1].index(j) for j in range(max(task) + 1)]
    if ends != sorted(ends):
        raise ValueError("forgetting takes tasks that come one after another, numbered as they come")
    return ends


def rows(found: dict[str, Matrix], stem: Row) -> list[Row]:
    R = found["forgetting"]
    figures = {name: forgotten(matrix) for name, matrix in found.items()} | {"backward_transfer": -forgotten(R)}
    curves = {LEARNED: R.diagonal(dim1=1, dim2=2), FINAL: R[:, -1], AVERAGE: R.nanmean(2)}
    numbers = [
        replace(stem, metric=name, scores=_kept(figure), **mean_and_spread(figure.tolist()))  # pyright: ignore
        for name, figure in figures.items()
    ]
    return numbers + [_drawn(stem, name, curve.mean(0)) for name, curve in curves.items()]


def forgotten(R: Matrix) -> Float[Tensor, "b"]:
    return (R[:, -1] - R.diagonal(dim1=1, dim2=2))[:, :-1].mean(1)


def _drawn(stem: Row, name: str, curve: Float[Tensor, "k"]) -> Row:
    pairs = tuple((float(number), value) for number, value in enumerate(_kept(curve), 1))
    return replace(stem, metric=name, value=curve.mean().item(), curve=pairs)


def _kept(values: Float[Tensor, "n"]) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values.tolist())


def _asked(
    method: Method[Any],
    state: Any,
    queries: Examples,
    known: Bool[Tensor, "b k c"] | None,
    rng: torch.Generator,
    at_mode: bool,
) -> dict[str, Float[Tensor, "b n"]]:
    metric = method.head.metric
    if known is None:
        return {"forgetting": method.score(state, queries, rng=rng, at_mode=at_mode)[metric]}
    prediction = method.predict(state, queries.x, rng=rng, at_mode=at_mode)
    known = F.pad(known, (0, prediction.shape[-1] - known.shape[-1]))  # or cut, where that is negative
    episode = torch.arange(len(known), device=known.device).unsqueeze(-1)
    same = prediction.masked_fill(~known[episode, queries.task], -torch.inf)
    return {
        "forgetting": method.head.scores(prediction, queries.targets)[metric],
        "forgetting_same_answers": method.head.scores(same, queries.targets)[metric],
    }


def known_by_task(stream: Examples) -> Bool[Tensor, "b k c"]:
    """Which classes have been met when each task is over."""
    label = stream.targets
    met = label.new_zeros(len(label), int(stream.task.max()) + 1, int(label.max()) + 1)
    met[torch.arange(len(label), device=label.device).unsqueeze(-1), stream.task, label] = 1
    return met.cumsum(1) > 0
