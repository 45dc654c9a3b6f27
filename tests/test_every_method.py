"""The contract of `Method`, tested once for all of them; `methods.py` lists whom.

The one law is `learn(learn(s, a), b) == learn(s, a + b)`. The rest is what training, evaluation and a deployed learner rely
on: nothing is changed in passing, episodes side by side do not see each other, and the same seed gives the same numbers.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from methods import METHODS, Case
from sbmcl.data.episodes import EpisodeSource, rng_for
from sbmcl.episode import Episode
from sbmcl.methods.base import Method
from sbmcl.runs import RunFolder
from sbmcl.state import map_tensors, state_bytes, tensors

Parts = tuple[Case, EpisodeSource, Method[Any]]


@pytest.fixture(params=METHODS)
def parts(request: pytest.FixtureRequest) -> Parts:
    """A case with its source and its method, in float64 and frozen as it is when it learns from a stream."""
    case = METHODS[request.param]
    source = case.source()
    return case, source, fresh(case, source)


@pytest.fixture(params=[name for name, case in METHODS.items() if case.meta_trained])
def trainable(request: pytest.FixtureRequest) -> Parts:
    """Of those with an outer loop."""
    case = METHODS[request.param]
    source = case.source()
    return case, source, fresh(case, source)


def fresh(case: Case, source: EpisodeSource, seed: int = 0) -> Method[Any]:
    torch.manual_seed(seed)
    return case.build(source).double().eval()


def drawn(parts: Parts, batch: int = 2, seed: int = 0) -> Episode:
    case, source, _ = parts
    return double(source.draw(case.shape, batch, rng_for(seed, "test", 0)))


def double(tree: Any) -> Any:
    return map_tensors(lambda t: t.double() if t.is_floating_point() else t, tree)


def seeded(index: int = 0) -> torch.Generator:
    return rng_for(0, "method", index)


@torch.no_grad()
def learned(method: Method[Any], episode: Episode, *cuts: int, rng: torch.Generator | None = None) -> Any:
    """The state after the stream, taken in pieces."""
    state = method.init(episode.size, rng=rng)
    for start, stop in zip((0, *cuts), (*cuts, len(episode.stream)), strict=True):
        state = method.learn(state, episode.stream[start:stop])
    return state


@torch.no_grad()
def scored(method: Method[Any], state: Any, episode: Episode, index: int = 0, **options: Any) -> dict[str, Tensor]:
    return method.score(state, episode.query, rng=seeded(index), **options)


def assert_close(one: Any, other: Any, tolerance: float) -> None:
    """Of whole trees. A number is judged beside the largest of its tensor, since a sum keeps no more than that exact."""
    mine, theirs = pytree.tree_leaves(one), pytree.tree_leaves(other)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, Tensor):
            scale = b.double().abs().nan_to_num(posinf=0.0).max().item() if b.numel() else 0.0
            torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=tolerance * max(scale, 1e-30))
        else:
            assert a == b


def assert_same(one: Any, other: Any) -> None:
    """Bit for bit."""
    mine, theirs = pytree.tree_leaves(one), pytree.tree_leaves(other)
    assert len(mine) == len(theirs)
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(mine, theirs, strict=True))


def copy(tree: Any) -> Any:
    return map_tensors(lambda t: t.detach().clone(), tree)


@pytest.mark.parametrize("cuts", ["whole", "single", "random 0", "random 1", "random 2"])
def test_any_chunks_give_the_same_state(parts: Parts, cuts: str) -> None:
    case, _, method = parts
    episode = drawn(parts)
    length = len(episode.stream)
    if cuts == "single":
        places = list(range(1, length))
    else:
        rng = torch.Generator().manual_seed(int(cuts[-1]) if cuts != "whole" else 0)
        places = [] if cuts == "whole" else (1 + torch.randperm(length - 1, generator=rng)[:3].sort().values).tolist()
    assert_close(
        learned(method, episode, *places, rng=seeded()), learned(method, episode, rng=seeded()), case.tolerance
    )


def test_the_stream_leaves_a_trace(parts: Parts) -> None:
    """What all other tests compare would be vacuous otherwise."""
    _, _, method = parts
    episode = drawn(parts)
    before, after = tensors(method.init(2, rng=seeded())), tensors(learned(method, episode, rng=seeded()))
    assert [t.shape for t in before] != [t.shape for t in after] or any(
        not torch.equal(a, b) for a, b in zip(before, after, strict=True)
    )
    assert state_bytes(after) > 0


def test_nothing_is_changed_in_passing(parts: Parts) -> None:
    """Learning is pure, predicting leaves the state alone, and neither touches the networks."""
    _, _, method = parts
    episode = drawn(parts)
    weights = copy(method.state_dict())
    first = method.init(2, rng=seeded())
    kept = copy(first)
    with torch.no_grad():
        state = method.learn(first, episode.stream)
    assert_same(first, kept)
    kept = copy(state)
    scored(method, state, episode)
    scored(method, state, episode, at_mode=True)
    if episode.query.y is not None:
        with torch.no_grad():
            method.predict(state, episode.query.x, rng=seeded())
    with torch.no_grad():
        method.novelty(state, episode.query.x)
    assert_same(state, kept)
    assert_same(method.state_dict(), weights)


def test_episodes_side_by_side_do_not_see_each_other(parts: Parts) -> None:
    case, _, method = parts
    episode = drawn(parts, batch=3)
    together = learned(method, episode)
    scores = scored(method, together, episode, at_mode=True)
    for i in range(3):
        one = map_tensors(lambda t, i=i: t[i : i + 1], episode)
        alone = learned(method, one)
        assert_close(_of_episode(together, alone, i, 3), alone, case.tolerance)
        if not case.noisy:
            mine = {name: score[i : i + 1] for name, score in scores.items()}
            assert_close(mine, scored(method, alone, one, at_mode=True), case.tolerance)


def _of_episode(together: Any, alone: Any, index: int, batch: int) -> Any:
    """The part of a state that belongs to one episode: along the axis, if any, where being alone makes it shorter."""

    def part(t: Tensor, one: Tensor) -> Tensor:
        axes = [axis for axis, (n, m) in enumerate(zip(t.shape, one.shape, strict=True)) if n != m]
        if not axes:
            return t
        assert len(axes) == 1
        assert t.shape[axes[0]] == batch * one.shape[axes[0]]
        return t.chunk(batch, axes[0])[index]

    return [part(t, one) for t, one in zip(tensors(together), tensors(alone), strict=True)]


def test_weights_saved_and_loaded_give_the_same_answers(parts: Parts, tmp_path: Path) -> None:
    case, source, method = parts
    episode = drawn(parts)
    if case.meta_trained:  # not only parameters matter: a batch-norm's averages do too
        with torch.no_grad():
            method.train().meta_loss(drawn(parts, seed=1), rng=seeded())
    method.eval()
    RunFolder(tmp_path).save_weights("last", method, step=7)
    other = fresh(case, source, seed=1)

    def answers(m: Method[Any]) -> dict[str, Tensor]:
        return scored(m, learned(m, episode, rng=seeded()), episode)

    right, before = answers(method), answers(other)
    assert any(not torch.equal(right[name], before[name]) for name in right)
    assert RunFolder(tmp_path).load_weights(other) == 7
    assert_same(answers(other.double()), right)


def test_float32_and_float64_agree(parts: Parts) -> None:
    case, source, method = parts
    episode = drawn(parts)
    torch.manual_seed(0)
    small = case.build(source).eval()
    single = map_tensors(lambda t: t.float() if t.is_floating_point() else t, episode)
    double_state, single_state = learned(method, episode), learned(small, single)
    assert all(t.dtype == torch.float32 for t in tensors(single_state) if t.is_floating_point())
    assert_close(single_state, double_state, case.single)
    if not case.noisy:
        theirs = scored(method, double_state, episode, at_mode=True)
        assert_close(scored(small, single_state, single, at_mode=True), theirs, case.single)


def test_training_reaches_every_parameter(trainable: Parts) -> None:
    """Three steps of Adam move everything that is not left alone on purpose, and the loss stays a number."""
    case, _, method = trainable
    method.train()
    before = copy(dict(method.named_parameters()))
    optimizer = torch.optim.Adam(method.parameters(), 1e-3)
    for index in range(3):
        loss = method.meta_loss(drawn(trainable, seed=index), rng=seeded(index)).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.isfinite()
    after = dict(method.named_parameters())
    assert all(value.isfinite().all() for value in after.values())
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved == set(after) - set(case.fixed)


def test_the_same_generator_gives_the_same_loss(trainable: Parts) -> None:
    """Dropout takes no generator, so training seeds torch too; everything else follows `rng` alone."""
    _, _, method = trainable
    episode, weights = drawn(trainable), copy(method.state_dict())

    def loss(global_seed: int) -> Any:
        method.load_state_dict(weights)  # a batch-norm's averages move, and may matter to what is learned next
        torch.manual_seed(global_seed)
        return copy(method.meta_loss(episode, rng=seeded()))

    method.train()
    assert_same(loss(0), loss(0))
    method.eval()
    assert_same(loss(0), loss(1))


def test_meta_loss_is_a_scalar_with_named_parts(trainable: Parts) -> None:
    _, _, method = trainable
    losses = method.train().meta_loss(drawn(trainable), rng=seeded())
    assert losses.total.shape == ()
    assert losses.total.requires_grad
    assert all(part.shape == () and part.isfinite() and not part.requires_grad for part in losses.parts.values())


@pytest.mark.parametrize("at_mode", [False, True])
def test_every_query_is_scored(parts: Parts, at_mode: bool) -> None:
    _, _, method = parts
    episode = drawn(parts)
    state = learned(method, episode, rng=seeded())
    scores = scored(method, state, episode, at_mode=at_mode)
    assert method.head.metric in scores
    assert all(score.shape == (2, len(episode.query)) and score.isfinite().all() for score in scores.values())
    assert_same(scored(method, state, episode, at_mode=at_mode), scores)


def test_the_mode_needs_no_random_numbers(parts: Parts) -> None:
    case, _, method = parts
    episode = drawn(parts)
    state = learned(method, episode, rng=seeded())
    one, other = (scored(method, state, episode, index, at_mode=True) for index in range(2))
    if case.noisy:
        assert any(not torch.equal(one[name], other[name]) for name in one)
    else:
        assert_same(one, other)


def test_novelty_is_one_number_a_query(parts: Parts) -> None:
    _, _, method = parts
    episode = drawn(parts)
    with torch.no_grad():
        novelty = method.novelty(learned(method, episode, rng=seeded()), episode.query.x)
    assert novelty is None or (novelty.shape == (2, len(episode.query)) and novelty.isfinite().all())
