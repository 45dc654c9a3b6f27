"""Intervals and tests against what theory says of them."""

import numpy as np
import pytest
from scipy import stats

from sbmcl.report.significance import holm, interval, not_worse_than_best, paired_p


def test_the_interval_is_that_of_the_mean() -> None:
    scores = np.random.default_rng(0).normal(3, 2, (1, 400))
    low, high = interval(scores)
    half = 1.96 * scores.std(ddof=1) / 20
    assert low == pytest.approx(scores.mean() - half, abs=0.02)
    assert high == pytest.approx(scores.mean() + half, abs=0.02)


def test_seeds_that_disagree_widen_the_interval() -> None:
    scores = np.random.default_rng(0).normal(0, 0.1, (3, 200))
    apart = scores + np.array([[-1.0], [0.0], [1.0]])
    assert np.diff(interval(apart)) > 5 * np.diff(interval(scores))


def test_pairing_sees_what_the_spread_over_episodes_hides() -> None:
    rng = np.random.default_rng(1)
    difficulty = rng.gamma(2, 1, (1, 300))
    ours, theirs = difficulty + rng.normal(0, 0.05, (1, 300)), difficulty + 0.02 + rng.normal(0, 0.05, (1, 300))
    assert stats.ttest_ind(ours[0], theirs[0]).pvalue > 0.5
    assert paired_p(ours, theirs) == pytest.approx(stats.ttest_rel(ours[0], theirs[0]).pvalue, abs=0.01)


def test_p_values_of_equal_methods_are_rarely_small() -> None:
    rng = np.random.default_rng(2)
    p = [paired_p(rng.normal(0, 1, (1, 60)), rng.normal(0, 1, (1, 60))) for _ in range(200)]
    assert 0.01 < np.mean(np.array(p) < 0.05) < 0.11


def test_only_episodes_that_both_were_asked_are_compared() -> None:
    scores = np.random.default_rng(3).gamma(2, 1, (1, 100))
    assert paired_p(scores[:, :20], scores) == 1.0


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]


def test_the_best_and_what_cannot_be_told_from_it() -> None:
    rng = np.random.default_rng(4)
    base = rng.gamma(2, 1, (1, 200))
    entries = [base + 1 + rng.normal(0, 0.1, (1, 200)), base, base + rng.normal(0.001, 0.1, (1, 200))]
    assert not_worse_than_best(entries) == [False, True, True]
    assert not_worse_than_best(entries[:1]) == [False], "nothing to compare with"
