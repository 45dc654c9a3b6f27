"""Cost along a growing stream: bytes by hand, and that what is timed is what is named."""

from typing import Any

import pytest
import torch

from sbmcl.config import ALPaCA, Offline, Online, Sine
from sbmcl.cost import again, cost, timed
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.evaluate import Trained
from sbmcl.experiment import Experiment
from sbmcl.results import LEARN_MS, QUERY_MS, STATE_BYTES, Row


def measured(method: Any, *lengths: int) -> dict[str, Row]:
    experiment = Experiment("r", "sine/regression", "m", Sine(), method)
    torch.manual_seed(0)
    trained = Trained(experiment, method.build(Sine().source("test")).eval(), 0, 0.0, "here")
    return {row.metric: row for row in cost(trained, lengths, seconds=0.0)}


def test_a_belief_is_as_large_after_a_thousand_examples_as_after_ten() -> None:
    found = measured(ALPaCA(width=8, hidden=8), 10, 100, 1_000)
    curve = found[STATE_BYTES].curve or ()
    assert [length for length, _ in curve] == [10, 100, 1_000]
    assert len({size for _, size in curve}) == 1


def test_a_learner_that_keeps_everything_grows_by_its_examples() -> None:
    """100 floats an example: fifty of x and fifty of y."""
    found = measured(Offline(width=8, steps=1), 10, 70)
    assert found[STATE_BYTES].curve == ((10, 4_000), (70, 28_000))
    assert found[STATE_BYTES].value == found[STATE_BYTES].state_bytes == 28_000
    assert (found[STATE_BYTES].tasks, found[STATE_BYTES].shots) == (10, 7)


def test_times_are_positive_and_of_one_example_or_query() -> None:
    found = measured(Online(width=8), 10, 20)
    for name in (LEARN_MS, QUERY_MS):
        assert all(0 < value < 1_000 for _, value in found[name].curve or ())
        assert found[name].value == (found[name].curve or ())[-1][1]


def test_the_stream_goes_round() -> None:
    stream = Sine().source("test").draw(EpisodeShape(2, 2, 1), 1, rng_for(0, "test", 0)).stream
    part = again(stream, 3, 9)
    assert len(part) == 6
    for place, source in enumerate((3, 0, 1, 2, 3, 0)):
        assert torch.equal(part.x[:, place], stream.x[:, source])
        assert torch.equal(part.targets[:, place], stream.targets[:, source])


def test_a_time_is_the_median_without_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = iter([0.0, 9.0, 10.0, 11.0, 20.0, 22.0, 30.0, 33.0]), []
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    assert timed(lambda: calls.append(1), torch.device("cpu"), seconds=15.0) == 2.0
    assert len(calls) == 4


@pytest.mark.parametrize("lengths", [(), (0, 10), (10, 10), (20, 10)])
def test_lengths_have_to_grow(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="counts from 1 that grow"):
        measured(ALPaCA(width=8, hidden=8), *lengths)
