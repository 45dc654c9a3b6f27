"""What is true of a StreamLearner because its state is a sum: whatever was done to it, it is the learner of what is left."""

import shutil
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sbmcl import StreamLearner
from sbmcl.stream.sums import Grid, Sums

DIM = 3
POOL = np.random.default_rng(0).normal(size=(40, DIM)) * [0.01, 1.0, 30.0]
LABELS = ["a", "b", 7, ("c", None)]
SOURCES = [None, "anna", 3]

spans = st.lists(st.integers(0, len(POOL) - 1), min_size=0, max_size=5)
sources = st.sampled_from(SOURCES)
Examples = Counter[tuple[int, Any]]
"""Rows of the pool and who they came from."""


class Story(RuleBasedStateMachine):
    """Two learners of one model, and beside each the examples that it should know."""

    belief: Any
    exact: bool

    def __init__(self) -> None:
        super().__init__()
        self.learners = [self.fresh(), self.fresh()]
        self.known: list[Examples] = [Counter(), Counter()]
        self.folder = Path(tempfile.mkdtemp())

    def fresh(self) -> StreamLearner:
        return StreamLearner.from_encoder(None, self.belief, dim=DIM, exact=self.exact)

    def y(self, rows: list[int]) -> Any:
        if self.belief == "matrix-normal":
            return POOL[rows].sum(1)
        return [LABELS[row % len(LABELS)] for row in rows]

    @rule(who=st.integers(0, 1), rows=spans, source=sources)
    def learn(self, who: int, rows: list[int], source: Any) -> None:
        self.learners[who].partial_fit(POOL[rows].reshape(-1, DIM), self.y(rows), source)
        self.known[who].update((row, source) for row in rows)

    @rule(who=st.integers(0, 1), source=st.sampled_from(SOURCES[1:]))
    def forget_a_source(self, who: int, source: Any) -> None:
        mine = [item for item in self.known[who].elements() if item[1] == source]
        if not mine:
            return
        assert self.learners[who].forget(source=source) == len(mine)
        self.known[who] -= Counter(mine)

    @rule(who=st.integers(0, 1), source=sources, data=st.data())
    def forget_examples(self, who: int, source: Any, data: st.DataObject) -> None:
        mine = sorted(row for row, whose in self.known[who].elements() if whose == source)
        if not mine:
            return
        rows = data.draw(st.permutations(mine))[: data.draw(st.integers(1, len(mine)))]
        assert self.learners[who].forget(POOL[rows], self.y(rows), source=source) == len(rows)
        self.known[who] -= Counter((row, source) for row in rows)

    @rule(who=st.integers(0, 1))
    def merge(self, who: int) -> None:
        before = [one.digest() for one in self.learners]
        merged = self.learners[who].merge(self.learners[1 - who])
        assert [one.digest() for one in self.learners] == before
        self.learners[who].close()
        self.learners[who], self.known[who] = merged, self.known[0] + self.known[1]

    @rule(who=st.integers(0, 1), journal=st.booleans())
    def save_and_load(self, who: int, journal: bool) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        if journal and self.learners[who]._home is None:
            self.learners[who].save(folder, journal=True)  # it goes on, and may be lost: see `crash`
        else:
            self.learners[who].save(folder)
            self.learners[who].close()
            self.learners[who] = StreamLearner.load(folder)

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        """Whatever was in memory is lost; a journal has it all."""
        home = self.learners[who]._home
        if home is not None:
            self.learners[who].close()
            self.learners[who] = StreamLearner.load(home.folder, journal=True)

    @rule(who=st.integers(0, 1))
    def ask(self, who: int) -> None:
        if self.known[who]:
            self.learners[who].predict(POOL[:2])

    def teardown(self) -> None:
        for one in self.learners:
            one.close()
        shutil.rmtree(self.folder)
        for one, known in zip(self.learners, self.known, strict=True):
            rebuilt = self.fresh()
            for source in SOURCES[::-1]:
                rows = sorted(row for row, whose in known.elements() if whose == source)
                rebuilt.partial_fit(POOL[rows].reshape(-1, DIM), self.y(rows), source)
            assert one.examples_ == rebuilt.examples_ == known.total()
            assert one.counts_ == rebuilt.counts_
            assert one.sources_ == rebuilt.sources_
            if self.exact:
                assert one.digest() == rebuilt.digest()
            assert one._known.difference(rebuilt._known) <= (0.0 if self.exact else 1e-8)
            if known:
                got, right = one.predict(POOL), rebuilt.predict(POOL)
                assert (got == right).all() if self.exact or self.belief != "matrix-normal" else True


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("belief", ["isotropic", "normal-gamma", "matrix-normal"])
def test_any_story_ends_in_the_learner_of_what_is_left(belief: str, exact: bool) -> None:
    machine = type("Story", (Story,), {"belief": belief, "exact": exact})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=15, stateful_step_count=12, deadline=None, derandomize=True)
    )


@pytest.mark.parametrize("belief", ["isotropic", "normal-gamma", "matrix-normal"])
@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=4), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_any_order_any_chunks_any_tree_of_merges_the_same_bits(belief: Any, order: Any, cuts: Any, random: Any) -> None:
    X = np.random.default_rng(1).normal(size=(12, DIM)) * [1e-6, 1.0, 700.0]  # sums of floats would differ
    y = X[:, 1] if belief == "matrix-normal" else np.arange(12) % 3
    edges = [0, *sorted(cuts), 12]
    shards = []
    for first, last in pairwise(edges):
        part = list(order[first:last])
        shards.append(StreamLearner.from_encoder(None, belief, dim=DIM).partial_fit(X[part], y[part]))
    while len(shards) > 1:
        random.shuffle(shards)
        shards.append(shards.pop().merge(shards.pop()))
    whole = StreamLearner.from_encoder(None, belief, dim=DIM).partial_fit(X, y)
    assert shards[0].digest() == whole.digest()
    assert shards[0].predict(X).tobytes() == whole.predict(X).tobytes()


def test_exact_sums_are_those_of_python_s_integers() -> None:
    """Also where a float64 would have rounded long ago."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5_000, 2)) * [1.0, 1000.0 / 5]
    one = StreamLearner.from_encoder(None, "normal-gamma", dim=2).partial_fit(x, ["k"] * len(x))
    whole = [[round(v * 2**14) for v in row] for row in x.tolist()]
    shift = [sum(row[d] for row in whole) << 15 for d in range(2)]
    energy = [sum(row[d] ** 2 for row in whole) for d in range(2)]
    count = len(x) << 29
    assert one._known.by_class.rows(["k"])[0].tolist() == [count, count, *shift, count >> 1, *energy]


def test_forgetting_takes_what_was_learned_and_nothing_else() -> None:
    X = np.eye(DIM)
    one = StreamLearner.from_encoder(None, "normal-gamma", dim=DIM)
    one.partial_fit(X, ["a", "b", "b"], source="anna").partial_fit(X[:1], ["a"])
    before = one.digest()
    for wrong in (
        lambda: one.forget(X[:1], ["b"]),  # it was anna's
        lambda: one.forget(X[1:2], ["a"]),  # another example
        lambda: one.forget(X[[0, 0]], ["a", "a"]),  # more than there are
        lambda: one.forget(X[:1], ["z"]),
        lambda: one.forget(X[:1], ["a"], source="bob"),
        lambda: one.forget(source="bob"),
        lambda: one.forget(),
    ):
        with pytest.raises(ValueError):
            wrong()
        assert one.digest() == before
    assert one.forget(X[:0], []) == 0
    assert one.forget(X[:1], ["a"]) == 1
    assert one.verify_forgotten([(X, ["a", "b", "b"], "anna")]) == 0.0
    assert one.verify_forgotten([(X, ["a", "b", "b"])]) == float("inf")
    assert one.verify_forgotten([(X[:2], ["a", "b"], "anna")]) == float("inf")
    assert one.forget(source="anna") == 3
    assert one.digest() == one.empty().digest()
    assert "b" not in one.class_ids_


def test_overflow_is_refused_and_changes_nothing() -> None:
    one = StreamLearner.from_encoder(None, "normal-gamma", dim=1, grid=22)
    X = np.full((1000, 1), 3.9)
    for _ in range(8):  # there are 2^61 units of 2^-45, and each example takes 3.9^2 / 2: 8,617 fit
        one.partial_fit(X, ["k"] * 1000)
    before = one.digest()
    with pytest.raises(ValueError, match="leave the grid"):
        one.partial_fit(X, ["k"] * 1000)
    assert one.digest() == before
    assert one.examples_ == 8_000
    with pytest.raises(ValueError, match="0 to 24 bits"):
        Grid(25)


def test_rows_given_up_are_used_again() -> None:
    sums = Sums(2, None)
    for number in range(1000):
        sums.apply(sums.plan([number], torch.tensor([[1.0, number]])))
        sums.drop([number])
    assert len(sums._table) <= 2
    sums.apply(sums.plan(list(range(100)), torch.ones(100, 2)))
    assert 100 <= len(sums._table) <= 200
    assert sums.values(range(100)).eq(1).all()
