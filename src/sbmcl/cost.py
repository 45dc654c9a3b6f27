"""What it costs to go on: bytes of state, and milliseconds to learn and to answer, as a stream grows.

The stream is one episode of ten tasks, met again and again, so that nothing but its length changes.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from sbmcl.episode import Episode, Examples
from sbmcl.evaluate import Measure, Trained, learn_in_chunks, questions
from sbmcl.methods.base import Method
from sbmcl.results import LEARN_MS, QUERY_MS, STATE_BYTES, Row
from sbmcl.state import map_tensors, state_bytes

LENGTHS = (100, 300, 1_000, 3_000, 10_000)
ONE_BY_ONE = 10  # examples that a time to learn is the mean of; more than a method may gather before it learns


def cost(trained: Trained, lengths: tuple[int, ...] = LENGTHS, *, seconds: float = 0.5) -> list[Row]:
    """Three rows with a curve over the lengths, and at the last length as the value; every time is taken for so long."""
    if not lengths or min(lengths) < 1 or list(lengths) != sorted(set(lengths)):
        raise ValueError(f"lengths of a stream are counts from 1 that grow, but got {lengths}")
    (asked,) = questions(trained, [(10, 10)])
    measure, method, device = Measure(trained, asked), trained.method, trained.device
    episode, rng = next(asked.draw(1, measure.state_bytes, device))
    with torch.no_grad():
        state, found = method.init(1, rng=rng), []
        for begin, end in pairwise((0, *lengths)):
            state = learn_in_chunks(method, state, again(episode.stream, begin, end))
            more = again(episode.stream, end, end + ONE_BY_ONE)
            learn, answer = partial(_one_by_one, method, state, more), partial(_one_query, method, state, episode, rng)
            found.append(
                {
                    STATE_BYTES: float(state_bytes(state)),
                    LEARN_MS: 1e3 * timed(learn, device, seconds) / ONE_BY_ONE,
                    QUERY_MS: 1e3 * timed(answer, device, seconds),
                }
            )
    last = found[-1]
    stem = replace(measure.row(1), shots=max(1, lengths[-1] // 10), queries=1, state_bytes=int(last[STATE_BYTES]))
    curves = {name: tuple((float(n), at[name]) for n, at in zip(lengths, found, strict=True)) for name in last}
    return [replace(stem, metric=name, value=last[name], curve=curve) for name, curve in curves.items()]


def again(stream: Examples, begin: int, end: int) -> Examples:
    """Part of the endless stream that a finite one makes when it is repeated."""
    places = torch.arange(begin, end, device=stream.x.device) % len(stream)
    return map_tensors(lambda t: t[:, places], stream)


def timed(work: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """The median time of one call. The first one warms up, unless it alone takes that long."""
    taken: list[float] = []
    while not taken or sum(taken) < seconds:
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return median(taken[1:] or taken)


def _one_by_one(method: Method[Any], state: Any, examples: Examples) -> None:
    for place in range(len(examples)):
        state = method.learn(state, examples[place : place + 1])


def _one_query(method: Method[Any], state: Any, episode: Episode, rng: torch.Generator) -> None:
    method.score(state, episode.query[:1], rng=rng)
