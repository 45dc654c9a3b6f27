"""Forgetting against matrices made by hand, and for learners of which it is known what they forget."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from methods import METHODS
from sbmcl.config import ALPaCA, Offline, Sine
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.episode import Episode, Examples
from sbmcl.evaluate import Trained
from sbmcl.experiment import Experiment
from sbmcl.forgetting import forgetting, forgotten, matrices, rows
from sbmcl.heads import ClassHead, VectorHead
from sbmcl.methods.base import Losses, Method
from sbmcl.results import AVERAGE, FINAL, LEARNED, Row
from sbmcl.state import state

SEEDED = rng_for(0, "test", 0)
NAN = float("nan")


@state
class Told:
    value: Tensor


class Script(Method[Told]):
    """Counts the tasks it has met and answers task j with the errors of a script, whatever it was told."""

    def __init__(self, script: Tensor):
        super().__init__()
        self.head = VectorHead()
        self.script = nn.Parameter(script)  # what R is to be

    def init(self, batch: int, *, rng: Any = None) -> Told:
        return Told(torch.zeros(batch, dtype=torch.long))

    def learn(self, state: Told, examples: Examples) -> Told:
        return Told(examples.task.amax(1) + 1)

    def predict(self, state: Told, x: Float[Tensor, "b n *x"], *, rng: Any = None, at_mode: bool = False) -> Tensor:
        return self.script[state.value - 1].gather(1, x[..., 0].long()).sqrt().unsqueeze(-1)

    def meta_loss(self, episode: Episode, *, rng: Any = None) -> Losses:
        raise NotImplementedError


def numbered(tasks: int, shots: int, batch: int = 1) -> Episode:
    """x is the number of the task; the answer to everything is 0, so an error of e is a score of e squared."""

    def part(n: int) -> Examples:
        task = torch.arange(tasks).repeat_interleave(n).expand(batch, -1)
        return Examples(task.unsqueeze(-1).float(), torch.zeros(*task.shape, 1), task)

    return Episode(part(shots), part(2))


SCRIPT = torch.tensor([[0.1, 9.0, 9.0], [0.4, 0.2, 9.0], [0.6, 0.1, 0.3]])


def test_the_matrix_is_the_scores_after_every_task() -> None:
    (R,) = matrices(Script(SCRIPT), numbered(3, shots=2), SEEDED).values()
    by_hand = torch.tensor([[[0.1, NAN, NAN], [0.4, 0.2, NAN], [0.6, 0.1, 0.3]]], dtype=torch.float64)
    torch.testing.assert_close(R, by_hand, equal_nan=True, atol=1e-6, rtol=0)


def test_rows_by_hand() -> None:
    """Task 1 went from 0.1 to 0.6 and task 2 from 0.2 to 0.1, so on average 0.2 was lost."""
    (R,) = matrices(Script(SCRIPT), numbered(3, shots=2), SEEDED).values()
    stem = Row("b", "m", "d", "d", 3, 2, "", 0.0, None, None, "r", 0, 2, 2, 0, 0.0, 0.0, 0, 0, "h", "h", None, "now")
    found = {row.metric: row for row in rows({"forgetting": torch.cat([R, R + 0.5])}, stem)}
    assert found["forgetting"].value == pytest.approx(0.2)
    assert found["forgetting"].scores == pytest.approx((0.2, 0.2))
    assert found["backward_transfer"].value == pytest.approx(-0.2)
    curves = {name: [value for _, value in found[name].curve or ()] for name in (LEARNED, FINAL, AVERAGE)}
    assert curves[LEARNED] == pytest.approx([0.35, 0.45, 0.55], abs=1e-6)
    assert curves[FINAL] == pytest.approx([0.85, 0.35, 0.55], abs=1e-6)
    assert curves[AVERAGE] == pytest.approx([0.35, 0.55, 0.25 + 1 / 3], abs=1e-6)
    assert [number for number, _ in found[LEARNED].curve or ()] == [1, 2, 3]


@state
class LastOnly:
    x: Tensor
    label: Tensor


class Forgetful(Method[LastOnly]):
    """Nearest neighbour among the examples of the newest class: forgets on purpose all that came before."""

    def __init__(self, memory: int):
        super().__init__()
        self.head = ClassHead()
        self.memory = memory  # in examples
        self.scale = nn.Parameter(torch.ones(()))

    def init(self, batch: int, *, rng: Any = None) -> LastOnly:
        return LastOnly(torch.zeros(batch, 0, 1), torch.zeros(batch, 0, dtype=torch.long))

    def learn(self, state: LastOnly, examples: Examples) -> LastOnly:
        x, label = torch.cat([state.x, examples.x], 1), torch.cat([state.label, examples.targets], 1)
        return LastOnly(x[:, -self.memory :], label[:, -self.memory :])

    def predict(self, state: LastOnly, x: Float[Tensor, "b n *x"], *, rng: Any = None, at_mode: bool = False) -> Tensor:
        near = -torch.cdist(x, state.x) * self.scale
        scores = near.new_full((*x.shape[:2], 6), -100.0)
        return scores.scatter_reduce(-1, state.label.unsqueeze(1).expand_as(near), near, "amax")

    def meta_loss(self, episode: Episode, *, rng: Any = None) -> Losses:
        raise NotImplementedError


def labelled(tasks: int) -> Episode:
    episode = numbered(tasks, shots=3, batch=2)
    return Episode(*(replace(part, y=part.task) for part in (episode.stream, episode.query)))


def test_who_forgets_everything_but_the_newest_class_loses_all_of_the_others() -> None:
    found = matrices(Forgetful(memory=3), labelled(4), SEEDED)
    R = found["forgetting"]
    assert torch.equal(R.diagonal(dim1=1, dim2=2), torch.zeros(2, 4, dtype=torch.float64))
    assert torch.equal(forgotten(R), torch.ones(2, dtype=torch.float64))
    # Among the answers of its own time, the first class is the only one there is, and always right
    torch.testing.assert_close(
        forgotten(found["forgetting_same_answers"]), torch.full((2,), 2 / 3, dtype=torch.float64)
    )


def test_who_remembers_everything_loses_nothing() -> None:
    found = matrices(Forgetful(memory=100), labelled(4), SEEDED)
    assert all(torch.equal(forgotten(R), torch.zeros(2, dtype=torch.float64)) for R in found.values())


@pytest.mark.parametrize("name", ["gemcl", "pn", "gemcl-informative-tempered"])
def test_a_belief_about_one_class_is_not_touched_by_the_others(name: str) -> None:
    """New classes are more answers to be wrong with; among the same answers nothing changes at all."""
    torch.manual_seed(0)
    source = METHODS[name].source()
    method = METHODS[name].build(source).eval()
    episode = source.draw(EpisodeShape(6, 4, 4), 8, rng_for(0, "test", 0))
    episode = replace(episode, query=replace(episode.query, x=episode.query.x + 0.5 * torch.randn(8, 24, 1, 16, 16)))
    found = matrices(method, episode, SEEDED)
    assert forgotten(found["forgetting"]).mean() > 0.01
    assert torch.equal(forgotten(found["forgetting_same_answers"]), torch.zeros(8, dtype=torch.float64))


def trained(method: Any, label: str = "m") -> Trained:
    experiment = Experiment("r", "sine/regression", label, Sine(), method)
    torch.manual_seed(0)
    return Trained(experiment, method.build(Sine().source("test")).eval(), 0, 0.0, "here")


def test_the_command_asks_seeded_episodes_of_any_method() -> None:
    learner = trained(ALPaCA(width=8, hidden=8))
    first = {row.metric: row for row in forgetting(learner, (3, 4), episodes=5)}
    again = {row.metric: row for row in forgetting(learner, (3, 4), episodes=5)}
    assert {name: row.scores for name, row in first.items()} == {name: row.scores for name, row in again.items()}
    assert len(first["forgetting"].scores or ()) == 5
    assert len(first[LEARNED].curve or ()) == 3
    assert (first["forgetting"].tasks, first["forgetting"].shots) == (3, 4)
    asked = forgetting(trained(Offline(width=8, steps=2)), (2, 2))
    assert all(row.episodes == 20 for row in asked)


def test_one_task_cannot_be_forgotten() -> None:
    with pytest.raises(ValueError, match="at least 2 tasks"):
        forgetting(trained(ALPaCA(width=8, hidden=8)), (1, 10))


def test_tasks_that_come_mixed_are_refused() -> None:
    episode = numbered(3, shots=2)
    mixed = replace(episode.stream, task=torch.tensor([[2, 1, 0, 2, 1, 0]]))
    with pytest.raises(ValueError, match="one after another"):
        matrices(Script(SCRIPT), Episode(mixed, episode.query), SEEDED)
