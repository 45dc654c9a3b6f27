"""The learning rate and batch of Online, chosen on validation episodes: never on those that results are made of.

    python benchmarks/online_rate.py sine
    python benchmarks/online_rate.py omniglot

prints the score of 10 tasks, 10 shots for every pair of a grid, best first; `*-online-tuned` are its winners.
"""

from itertools import product

import torch
import tyro

from sbmcl.config import DATA, Online
from sbmcl.evaluate import Trained, evaluate
from sbmcl.experiment import Experiment

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
BATCHES = (2, 5, 10, 20)


def main(
    data: str, /, *, rates: tuple[float, ...] = RATES, batches: tuple[int, ...] = BATCHES, episodes: int = 20
) -> None:
    config = DATA[data]()
    source = config.source("train")
    assert source is not None, "only a validation split may be switched off"
    found = []
    for lr, batch in product(rates, batches):
        method = Online(lr=lr, batch=batch)
        torch.manual_seed(0)
        learner = Trained(Experiment("online-rate", data, "online", config, method), method.build(source), 0, 0.0, "")
        row = next(evaluate(learner, [(10, 10)], episodes=episodes, split="validation"))[0]
        found.append((row.value, row.ci95 or 0.0, lr, batch))
        print(f"lr {lr:<7g} batch {batch:<3} {row.metric} {row.value:.4f} ± {row.ci95 or 0.0:.4f}", flush=True)
    print("\nbest first")
    for value, spread, lr, batch in sorted(found):
        print(f"lr {lr:<7g} batch {batch:<3} {value:.4f} ± {spread:.4f}")


if __name__ == "__main__":
    tyro.cli(main)
