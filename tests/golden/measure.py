"""Numbers that should not change by accident: `python tests/golden/measure.py [METHOD ...]` writes them anew.

Whoever means to change what is drawn or learned runs it and commits the difference; a refactoring leaves it alone. Given
names of `tests/methods.py`, it adds those methods; without, it measures the ones that are there already.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from methods import METHODS
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.sine import SineSource
from sbmcl.state import map_tensors

FILE = Path(__file__).with_name("golden.json")
STEPS = 5


def seeds() -> dict[str, int]:
    """Changing these changes every episode of every evaluation."""
    asked = [(0, "train", 0), (0, "train", 1), (1, "train", 0), (0, "method", 0), (0, "validation", 3)]
    return {f"{seed} {purpose} {index}": rng_for(seed, purpose, index).initial_seed() for seed, purpose, index in asked}


def sines() -> list[float]:
    episode = SineSource().draw(EpisodeShape(2, 1, 1), 1, rng_for(0, "golden", 0))
    return [*episode.stream.x[0, 0, :3].tolist(), *episode.query.targets[0, 1, :3].tolist()]


def losses(name: str) -> list[float]:
    """Of a few steps of plain gradient descent in float64, then the score of a stream learned with what they led to."""
    case = METHODS[name]
    source = case.source()
    torch.manual_seed(0)
    method = case.build(source).double().train()

    def episode(index: int) -> Any:
        drawn = source.draw(case.shape, 4, rng_for(0, "golden", index))
        return map_tensors(lambda t: t.double() if t.is_floating_point() else t, drawn)

    found = []
    for index in range(STEPS):
        total = method.meta_loss(episode(index), rng=rng_for(0, "golden method", index)).total
        method.zero_grad()
        total.backward()
        with torch.no_grad():
            for parameter in method.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
        found.append(total.item())
    method.eval()
    with torch.no_grad():
        last, rng = episode(STEPS), rng_for(0, "golden method", STEPS)
        scores = method.score(method.learn(method.init(4, rng=rng), last.stream), last.query, rng=rng)
    return [*found, *(scores[key].mean().item() for key in sorted(scores))]


def measure(names: list[str]) -> dict[str, Any]:
    return {"seeds": seeds(), "sines": sines(), "losses": {name: losses(name) for name in names}}


if __name__ == "__main__":
    known = json.loads(FILE.read_text())["losses"] if FILE.exists() else {}
    FILE.write_text(json.dumps(measure(sorted({*known, *sys.argv[1:]})), indent=1) + "\n")
