"""What the whole report comes down to: counts of standings, what was used, and the family's cells at a glance.

It may know cells and tables; pages only write it out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sbmcl.report import names
from sbmcl.report.cells import Standing
from sbmcl.report.tables import Cell, Table
from sbmcl.results import Row

STATISTICS = (
    "Ours is the mean over seeds of meta-training, ± the standard deviation over them; of a single seed, the mean with its 95 % "
    "interval over episodes. Every method is asked the same seeded episodes, so intervals and comparisons come from a paired "
    "bootstrap (5,000 seeded resamples of episodes and, where there are several, of seeds). With one seed they speak of the "
    "trained networks at hand, not of training again.",
    "Bold marks the best of a column and whatever cannot be told from it at the 5 % level after Holm's correction within the "
    "column; a column where nothing can be told apart has none. Columns are not corrected for each other: each answers its own "
    "question. Rows may differ in training budget, and bold does not forgive that.",
    "Distance is ours minus the paper's in units of spread: their standard deviation over runs and our uncertainty added in "
    "squares, at least half a unit of their last printed digit. Below zero is better. Within 2 counts as agreement. The paper's "
    "spread is over 5 runs; of Offline and Online it is the standard error over 20 episodes.",
    "Reproduced, better and worse are for the published recipe trained for all 50,000 steps. Everything less is a reduced "
    "budget, with the steps and the time it had.",
)
UNLIKE_THE_PAPER = (
    "Offline and Online are scored here on all test examples; the paper's numbers are of the last batch of four images.",
    "CASIA classification Offline is .345 in the paper's main table and .165 in its appendix; both are shown.",
    "Rotation as published can be solved without the stream; rotation with class offsets is the variant that needs it.",
)


@dataclass(frozen=True)
class Summary:
    total: int  # scores in the paper's tables
    standings: dict[Standing, int]
    runs: int
    settings: int
    hardware: list[str]
    commits: list[str]
    episodes: tuple[int, int]
    glance: list[Cell]  # SB-MCL at 10 tasks, 10 shots

    @property
    def measured(self) -> int:
        return self.total - self.standings[Standing.NOT_RUN]

    @property
    def sentence(self) -> str:
        n = self.standings
        parts = [
            (n[Standing.REPRODUCED], "reproduced"),
            (n[Standing.BETTER], "better than printed"),
            (n[Standing.WORSE], "worse than printed"),
            (n[Standing.REDUCED_REACHED], "reached with less training"),
            (n[Standing.REDUCED_SHORT], "not reached with less training"),
            (n[Standing.NOT_RUN], "not run"),
        ]
        said = names.sentence([f"{count} {words}" for count, words in parts if count])
        return f"Of the {self.total} scores in the paper's tables: {said}."


def summarise(rows: Sequence[Row], tables: Sequence[Table]) -> Summary:
    counts = Counter(standing for table in tables for standing in table.standings)
    glance = {}
    for cell in (cell for table in tables for cell in table.cells.values()):
        question = cell.question
        if cell.row == names.METHODS["sbmcl"] and (question.tasks, question.shots) == (10, 10) and cell.published:
            glance.setdefault((question.benchmark, question.meta_test), cell)
    return Summary(
        total=sum(counts.values()),
        standings={standing: counts[standing] for standing in Standing},
        runs=len({(row.recipe, row.seed, row.budget, row.train_hardware) for row in rows}),
        settings=len(rows),
        hardware=sorted({row.train_hardware for row in rows} | {row.hardware for row in rows}),
        commits=sorted({row.commit for row in rows if row.commit}),
        episodes=(min((row.episodes for row in rows), default=0), max((row.episodes for row in rows), default=0)),
        glance=list(glance.values()),
    )
