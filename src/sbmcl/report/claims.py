"""What the paper says in words, put to the test on our rows: does it hold here, and on what evidence?

It may know cells and significance. A claim is judged for each benchmark by itself, at the 5 % level, and only by entries that
stand for their method in figures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sbmcl.report import names
from sbmcl.report.cells import MAIN_METRIC, Answers, Measured, drawn_entries
from sbmcl.report.significance import LEVEL, not_worse_than_best, paired_p, resampled_means
from sbmcl.report.tables import where

Verdict = Literal["holds", "does not hold"]
ByMethod = dict[str, dict[tuple[int, int], Measured]]  # what was measured of each method, by (tasks, shots)

LONGER = "With more tasks than it was trained on, SB-MCL is best or not to be told from the best."
SHOTS = "More shots of the same tasks do not hurt SB-MCL."
COLLAPSE = "Beyond the lengths it was trained on, the Transformer loses more than SB-MCL."
MODE = "The mode of the belief answers as well as the whole belief (MAP)."


@dataclass(frozen=True)
class Claim:
    text: str
    benchmark: str
    verdict: Verdict
    evidence: str


def judge(found: Answers) -> list[Claim]:
    """All claims that the rows have something to say on, grouped by what is claimed."""
    claims = [claim for place, methods in _places(found) for claim in _judge(place, methods)]
    order = [LONGER, SHOTS, COLLAPSE, MODE]
    return sorted(claims, key=lambda claim: order.index(claim.text))


def _places(found: Answers) -> Iterator[tuple[str, ByMethod]]:
    chosen, places = drawn_entries(found), {}
    for question, measured in found.items():
        if question.metric == MAIN_METRIC.get(question.task):
            for entry, ours in measured.items():
                stands = chosen.get((question.benchmark, entry.method, question.meta_train)) == entry
                if stands and ours.scores is not None:
                    methods = places.setdefault(where(*question[:3]), {})
                    methods.setdefault(entry.method, {})[question.tasks, question.shots] = ours
    yield from sorted(places.items())


def _judge(place: str, methods: ByMethod) -> Iterator[Claim]:
    family, transformer, mode = (methods.get(name, {}) for name in ("sbmcl", "tf", "sbmcl-map"))
    rivals = {name: at for name, at in methods.items() if name not in ("sbmcl", "sbmcl-map", "offline", "online")}
    longest = max((pair for pair in family if pair[0] > 10 and any(pair in at for at in rivals.values())), default=None)
    if longest:
        asked = {"sbmcl": family[longest]} | {name: at[longest] for name, at in rivals.items() if longest in at}
        best = not_worse_than_best([_scores(ours) for ours in asked.values()])
        values = [f"{names.method(name)} {names.number(ours.value)}" for name, ours in asked.items()]
        yield _claim(LONGER, place, best[0], f"{names.plural(longest[0], 'task')}: {', '.join(values)}")
    most = max((pair for pair in family if pair[1] > 10), default=None)
    if most and (10, 10) in family:
        few, many = family[10, 10], family[most]
        low, high = _percentiles(resampled_means(_scores(many), 0) - resampled_means(_scores(few), 1))
        numbers = f"10 shots {names.number(few.value)}, {most[1]} shots {names.number(many.value)}"
        yield _claim(SHOTS, place, low <= 0, f"{numbers}; difference {_range(low, high)}")
    beyond = max((pair for pair in family if pair[0] > 10 and pair in transformer), default=None)
    if beyond and (10, 10) in family and (10, 10) in transformer:
        theirs = resampled_means(_scores(transformer[beyond]), 0) - resampled_means(_scores(transformer[10, 10]), 1)
        ours = resampled_means(_scores(family[beyond]), 2) - resampled_means(_scores(family[10, 10]), 3)
        low, high = _percentiles(theirs - ours)
        numbers = [
            f"{name} {names.number(at[10, 10].value)} to {names.number(at[beyond].value)}"
            for name, at in (("TF", transformer), ("SB-MCL", family))
        ]
        evidence = f"10 to {beyond[0]} tasks: {', '.join(numbers)}; it loses {_range(low, high)} more"
        yield _claim(COLLAPSE, place, low > 0, evidence)
    if (10, 10) in family and (10, 10) in mode:
        p = paired_p(_scores(mode[10, 10]), _scores(family[10, 10]))
        worse = mode[10, 10].value > family[10, 10].value and p < LEVEL
        numbers = f"MAP {names.number(mode[10, 10].value)}, full {names.number(family[10, 10].value)}"
        yield _claim(MODE, place, not worse, f"{numbers}; p = {p:.2g}")


def _claim(text: str, place: str, holds: bool, evidence: str) -> Claim:
    return Claim(text, place, "holds" if holds else "does not hold", evidence)


def _scores(ours: Measured) -> np.ndarray:
    assert ours.scores is not None, "only what was asked episode by episode is judged"
    return ours.scores


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, (100 * LEVEL / 2, 100 * (1 - LEVEL / 2)))
    return float(low), float(high)


def _range(low: float, high: float) -> str:
    return f"{names.number(low)} to {names.number(high)} (95 %)"
