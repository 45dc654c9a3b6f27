"""What one example costs StreamLearner, to learn and to answer, beside other incremental classifiers on the same vectors.

    python benchmarks/stream_learner.py
    python benchmarks/stream_learner.py --classes 10 1000 --dim 512 --seconds 2

prints a table for every number of classes. Times are of the processor and the best of as many as fit into `--seconds`, with
the learners taken in turn, so that whatever else the machine does hits all alike. `centroids` is what any answer has to do:
the distance to every class in NumPy, with nothing checked. NearestCentroid learns by beginning again; SGD by a step for every
class; River's naive Bayes (if it is installed) is Python.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid

from sbmcl import StreamLearner
from sbmcl.runs import hardware
from sbmcl.stream.priors import BeliefName

SHOTS = 5


@dataclass
class Learner:
    learn: Callable[[Any, Any], Any]
    """One example."""
    predict: Callable[[Any], Any]
    """A batch."""


def learners(X: np.ndarray, y: np.ndarray, skip: tuple[str, ...]) -> dict[str, Learner]:
    """Those that are not skipped, having learned X and y."""
    found: dict[str, Learner] = {}
    ours: tuple[tuple[str, BeliefName, bool], ...] = (
        ("StreamLearner, prototypes", "isotropic", True),
        ("the same, exact=False", "isotropic", False),
        ("StreamLearner, Normal-Gamma", "normal-gamma", True),
    )
    for name, belief, exact in ours:
        one = StreamLearner.from_encoder(None, belief, dim=X.shape[1], exact=exact).partial_fit(X, y)
        found[name] = Learner(one.partial_fit, one.predict)
    centroids = NearestCentroid().fit(X, y)
    found["sklearn NearestCentroid"] = Learner(lambda x, label: NearestCentroid().fit(X, y), centroids.predict)
    for name, model in (("sklearn GaussianNB", GaussianNB()), ("sklearn SGDClassifier", SGDClassifier(random_state=0))):
        if any(word in name for word in skip):
            continue
        model.partial_fit(X, y, classes=np.unique(y))
        found[name] = Learner(model.partial_fit, model.predict)
    centres = np.stack([X[y == label].mean(0) for label in np.unique(y)])

    def nearest(x: np.ndarray) -> np.ndarray:
        return ((centres**2).sum(1) - 2 * x @ centres.T).argmin(1)

    found["centroids, NumPy"] = Learner(lambda x, label: None, nearest)
    return found | of_river(X, y)


def of_river(X: np.ndarray, y: np.ndarray) -> dict[str, Learner]:
    try:
        from river.naive_bayes import GaussianNB as RiverNB  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    model = RiverNB()

    def learn(x: np.ndarray, label: np.ndarray) -> None:
        for row, name in zip(x.tolist(), label.tolist(), strict=True):
            model.learn_one(dict(enumerate(row)), name)

    learn(X, y)
    return {"River GaussianNB": Learner(learn, lambda x: [model.predict_one(dict(enumerate(r))) for r in x.tolist()])}


def times(jobs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The best time of each, taken in turns until each has had its seconds."""
    best, spent = dict.fromkeys(jobs, float("inf")), dict.fromkeys(jobs, 0.0)
    while waiting := [name for name in jobs if spent[name] < seconds]:
        for name in waiting:
            start = time.process_time()
            jobs[name]()
            took = time.process_time() - start
            best[name], spent[name] = min(best[name], took), spent[name] + max(took, 1e-4)
    return best


def measured(count: int, dim: int, batch: int, seconds: float, skip: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Times of every learner, by what is done."""
    rng = np.random.default_rng(0)
    centre = 3 * rng.normal(size=(count, dim))
    y = np.repeat(np.arange(count), SHOTS)
    X = centre[y] + rng.normal(size=(len(y), dim))
    many = centre[rng.integers(0, count, batch)] + rng.normal(size=(batch, dim))
    one, label = many[:1], y[:1]
    found = learners(X, y, skip)

    def both(each: Learner) -> None:
        each.learn(one, label)
        each.predict(one)

    todo: dict[str, Callable[[Learner], Any]] = {
        "learn one": lambda each: each.learn(one, label),
        "learn and answer one": both,
        "answer one": lambda each: each.predict(one),
        f"answer {batch:,}": lambda each: each.predict(many),
    }
    return {
        title: times({name: partial(act, each) for name, each in found.items()}, seconds) for title, act in todo.items()
    }


def main(
    classes: tuple[int, ...] = (10, 1_000, 10_000),
    *,
    dim: int = 64,
    batch: int = 1_000,
    seconds: float = 1.0,
    threads: int = 1,
    skip: tuple[str, ...] = (),
) -> None:
    """Args:
    skip: Leave out learners whose name has one of these words in it, such as SGDClassifier, which is slow to begin.
    """
    torch.set_num_threads(threads)
    console = Console()
    for count in classes:
        columns = measured(count, dim, batch, seconds, skip)
        title = f"{count:,} classes of vectors of {dim}, milliseconds"
        table = Table(title=title, caption=hardware(torch.device("cpu")), box=None)
        table.add_column("")
        for title in columns:
            table.add_column(title, justify="right")
        for name in next(iter(columns.values())):
            table.add_row(name, *(f"{1000 * column[name]:,.3f}" for column in columns.values()))
        console.print(table, "")


if __name__ == "__main__":
    tyro.cli(main)
