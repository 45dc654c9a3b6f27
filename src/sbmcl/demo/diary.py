"""What one held-out stream teaches, looked at as it goes by: the measurements behind the demonstration.

It may know methods and episodes, nothing of how its numbers are shown. ALPaCA on sine functions throughout.
"""

import copy
from dataclasses import dataclass

import torch

from sbmcl.beliefs import MatrixNormal
from sbmcl.data.episodes import rng_for
from sbmcl.episode import Episode, Examples
from sbmcl.methods.conjugate import ALPaCA
from sbmcl.state import map_tensors

MOMENTS = (0, 1, 2, 4, 10)  # examples of its own task seen when a query is asked again


@dataclass(frozen=True)
class Answer:
    """What is predicted for one query at one moment."""

    when: str
    mean: list[float]
    spread: list[float]  # standard deviation
    error: float  # mean squared


@dataclass(frozen=True)
class Sharpening:
    """One query, asked again and again while the stream goes by."""

    given: list[float]  # its x
    truth: list[float]
    answers: list[Answer]


def held_out() -> torch.Generator:
    """Of the stream that is shown; always the same one."""
    return rng_for(0, "demonstration", 0)


def sharpening(method: ALPaCA, episode: Episode, *, task: int) -> Sharpening:
    """The first query of a task: asked before the task comes, after some of its examples, and at the end of the stream."""
    shots = int((episode.stream.task == task).sum())
    before = task * shots
    query = of_task(episode.query, task)[:1]
    answers = []
    for seen in sorted({min(moment, shots) for moment in MOMENTS}):
        when = f"{seen} of its {shots} examples seen" if seen else "before its task begins"
        answers.append(answer(method, episode.stream[: before + seen], query, when))
    tasks = int(episode.stream.task.max()) + 1
    answers.append(answer(method, episode.stream, query, f"all {tasks} tasks seen"))
    return Sharpening(query.x.flatten().tolist(), query.targets.flatten().tolist(), answers)


@torch.no_grad()
def answer(method: ALPaCA, stream: Examples, query: Examples, when: str) -> Answer:
    predictive = method.predict(method.learn(method.init(1), stream), query.x)
    spread = (predictive.aleatoric + predictive.epistemic).sqrt()
    error = (predictive.mean - query.targets).square().mean().item()
    return Answer(when, predictive.mean.flatten().tolist(), spread.flatten().tolist(), error)


@torch.no_grad()
def errors_by_task(method: ALPaCA, episode: Episode) -> list[list[float]]:
    """Row t: the error of every task of the episode once t tasks have been learned; row 0 is before the first."""
    tasks = int(episode.stream.task.max()) + 1
    shots = len(episode.stream) // tasks
    state = method.init(episode.size)
    rows = [task_errors(method, state, episode.query, tasks)]
    for task in range(tasks):
        state = method.learn(state, episode.stream[task * shots : (task + 1) * shots])
        rows.append(task_errors(method, state, episode.query, tasks))
    return rows


def task_errors(method: ALPaCA, belief: MatrixNormal, queries: Examples, tasks: int) -> list[float]:
    score = method.score(belief, queries)["mse"]
    return [score[queries.task == task].mean().item() for task in range(tasks)]


@torch.no_grad()
def promises(method: ALPaCA, episode: Episode, *, forgotten: int) -> dict[str, float]:
    """Other ways to the same knowledge, and by how much their answers differ, relative to the largest answer.

    In float64, where rounding hides nothing.
    """
    method = copy.deepcopy(method).double()
    episode = map_tensors(lambda t: t.double() if t.is_floating_point() else t, episode)
    stream, prior = episode.stream, method.init(1)
    whole, half = method.learn(prior, stream), len(stream) // 2
    one_by_one = prior
    for i in range(len(stream)):
        one_by_one = method.learn(one_by_one, stream[i : i + 1])
    order = torch.randperm(len(stream), generator=rng_for(0, "demonstration order", 0))
    shuffled = map_tensors(lambda t: t[:, order], stream)
    left, right = method.learn(prior, stream[:half]), method.learn(prior, stream[half:])
    task = of_task(stream, forgotten)
    evidence = prior.evidence(method.run(method.encoder, task.x), task.targets)
    never_met = map_tensors(lambda t: t[:, stream.task[0] != forgotten], stream)

    def difference(one: MatrixNormal, other: MatrixNormal) -> float:
        first, second = (method.predict(belief, episode.query.x).mean for belief in (one, other))
        return ((first - second).abs().max() / second.abs().max()).item()

    return {
        "one example at a time, or all at once": difference(one_by_one, whole),
        "in a random order, or task after task": difference(method.learn(prior, shuffled), whole),
        "two halves learned apart and merged, or one stream": difference(left.merge(right, prior=prior), whole),
        f"task {forgotten + 1} retracted, or never met": difference(
            whole.retract(evidence), method.learn(prior, never_met)
        ),
    }


def of_task(examples: Examples, task: int) -> Examples:
    return map_tensors(lambda t: t[:, examples.task[0] == task], examples)
