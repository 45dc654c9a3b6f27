"""What the episodes back: intervals and paired comparisons by bootstrap, corrected for how many are made at once.

It may know arrays of scores only. Every draw is seeded, so that the same scores give the same answers.

Scores of one method are a matrix, seeds of meta-training by episodes. A resample draws episodes with replacement, the same
ones for all methods, which is what pairs them; and the seeds of each method by themselves, so that several seeds widen the
interval by what differs between trainings. With one seed it speaks of these trained networks alone.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]  # seeds x episodes, lower is better

RESAMPLES = 5_000
LEVEL = 0.05


@cache
def _episode_weights(episodes: int) -> Scores:
    """How often each resample drew each episode, as shares."""
    rng = np.random.default_rng(episodes)
    return rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=RESAMPLES) / episodes


def resampled_means(scores: Scores, stream: int = 0) -> NDArray[np.float64]:
    """The mean of every resample; entries that are compared get a `stream` of their own, so that their seeds are independent."""
    seeds, episodes = scores.shape
    by_seed = _episode_weights(episodes) @ scores.T
    rng = np.random.default_rng([seeds, stream])
    drawn = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    return (by_seed * drawn).sum(axis=1)


def interval(scores: Scores) -> tuple[float, float]:
    """The central 95 % of the resampled means."""
    low, high = np.percentile(resampled_means(scores), (100 * LEVEL / 2, 100 * (1 - LEVEL / 2)))
    return float(low), float(high)


def paired_p(ours: Scores, theirs: Scores) -> float:
    """Two-sided bootstrap p-value of equal means, from the first episodes that both were asked."""
    both = min(ours.shape[1], theirs.shape[1])
    difference = resampled_means(ours[:, :both], 0) - resampled_means(theirs[:, :both], 1)
    beyond = min(np.count_nonzero(difference <= 0), np.count_nonzero(difference >= 0))
    return min(1.0, 2 * (int(beyond) + 1) / (RESAMPLES + 1))


def holm(p_values: list[float]) -> list[float]:
    """Adjusted p-values that bound the chance of any false rejection among them (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, which in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[which]))
        adjusted[which] = highest
    return adjusted


def not_worse_than_best(scores: list[Scores]) -> list[bool]:
    """Which entries are the best, or cannot be told from it at the 5 % level; none where there is nothing to compare."""
    if len(scores) < 2:
        return [False] * len(scores)
    best = min(range(len(scores)), key=lambda which: scores[which].mean())
    others = [which for which in range(len(scores)) if which != best]
    adjusted = holm([paired_p(scores[best], scores[which]) for which in others])
    level = {best: True} | {which: p > LEVEL for which, p in zip(others, adjusted, strict=True)}
    return [level[which] for which in range(len(scores))]
