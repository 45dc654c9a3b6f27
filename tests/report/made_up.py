"""Made-up rows, shaped like real ones: scores scattered around the paper's values."""

from dataclasses import replace

import numpy as np

from sbmcl.report.cells import Published, published_recipe, read_paper
from sbmcl.results import AVERAGE, FINAL, LEARN_MS, LEARNED, QUERY_MS, RELIABILITY, STATE_BYTES, TRAINING, Row

ROW = Row(
    benchmark="sine/regression",
    method="sbmcl",
    meta_train="sine",
    meta_test="sine",
    tasks=10,
    shots=10,
    metric="mse",
    value=0.0011,
    std=0.001,
    ci95=0.0001,
    recipe="sine-alpaca",
    seed=0,
    episodes=64,
    queries=50,
    steps=50_000,
    train_seconds=900.0,
    eval_seconds=12.0,
    state_bytes=1_000_000,
    peak_memory_bytes=200_000_000,
    hardware="made-up processor, 2 threads",
    train_hardware="made-up processor, 2 threads",
    commit="0123456789ab",
    date="2026-01-01T00:00:00Z",
)


def scored(row: Row, scores: np.ndarray) -> Row:
    kept = tuple(np.round(scores, 6).tolist())
    half = 1.96 * float(np.std(scores, ddof=1)) / len(scores) ** 0.5
    return replace(row, value=float(np.mean(kept)), ci95=half, scores=kept, episodes=len(scores))


def rows_like(cell: Published, *, seed: int = 0, episodes: int = 64, factor: float = 1.0, **changes: object) -> Row:
    """A row that answers a cell with `factor` times the paper's value, give or take what episodes differ by."""
    question = cell.question
    rng = np.random.default_rng([seed, question.tasks, question.shots, len(cell.method)])
    difficulty = np.random.default_rng([question.tasks, question.shots]).gamma(
        4, 1 / 4, episodes
    )  # same for all methods
    scores = factor * cell.value * difficulty / difficulty.mean() * rng.gamma(100, 1 / 100, episodes)
    row = replace(
        ROW,
        benchmark=question.benchmark,
        method=cell.method,
        meta_train=question.meta_train,
        meta_test=str(question.meta_test),
        tasks=question.tasks,
        shots=question.shots,
        metric=question.metric,
        recipe=published_recipe(question.benchmark, cell.method),
        seed=seed,
        steps=0 if cell.method in ("offline", "online") else 50_000,
        state_bytes=4_000 * (question.tasks * question.shots if cell.method == "tf" else 100),
        eval_seconds=0.1 * question.tasks,
    )
    return replace(scored(row, scores), **changes)  # pyright: ignore[reportArgumentType]


def a_full_house() -> list[Row]:
    """Sine measured with three seeds, Omniglot and CASIA in part and on a budget, a benchmark of our own, every curve."""
    rows = []
    for cell in read_paper():
        question = cell.question
        if question.benchmark == "sine/regression":
            seeds = [0] if cell.method in ("offline", "online") else [0, 1, 2]
            rows += [rows_like(cell, seed=seed, factor=0.95 + 0.05 * seed) for seed in seeds]
        elif question.benchmark == "omniglot/classification":
            rows.append(rows_like(cell, factor=1.3, budget="20m", steps=2_345))
        elif question.benchmark == "casia/classification" and cell.method in ("sbmcl", "sbmcl-map", "tf", "oml"):
            rows.append(rows_like(cell, factor=0.6 if cell.method == "oml" else 1.8))
    sine = [row for row in rows if row.benchmark == "sine/regression" and row.shots == 10 and row.seed == 0]
    rows += [replace(row, metric="nll", scores=None, value=10 * row.value) for row in sine]
    offset = {"benchmark": "glyphs/rotation-offset", "meta_train": "glyphs", "meta_test": "glyphs", "metric": "angle"}
    rows += [replace(row, **offset, recipe=f"glyphs-rotation-offset-{row.method}") for row in sine if row.tasks <= 50]
    for row in sine:
        if row.tasks == 10:
            rows += [replace(row, metric=metric, scores=None, curve=pairs) for metric, pairs in _curves(row).items()]
    pn = next(row for row in rows if row.benchmark == "omniglot/classification" and row.method == "sbmcl")
    return [*rows, replace(pn, method="pn", recipe="omniglot-pn")]


def _curves(row: Row) -> dict[str, tuple[tuple[float, float], ...]]:
    positions = range(1, 11)
    return {
        TRAINING: tuple((minute / 2, row.value * (1 + 5 / (1 + minute))) for minute in range(31)),
        LEARNED: tuple((float(k), row.value) for k in positions),
        FINAL: tuple((float(k), row.value * (1 + (10 - k) / 20)) for k in positions),
        AVERAGE: tuple((float(k), row.value * (1 + k / 40)) for k in positions),
        STATE_BYTES: tuple((float(n), 4e3 * (n if row.method == "tf" else 100)) for n in (100, 1_000, 10_000)),
        LEARN_MS: tuple((float(n), 0.5 + 1e-3 * (n if row.method == "tf" else 1)) for n in (100, 1_000, 10_000)),
        QUERY_MS: tuple((float(n), 0.7 + 1e-3 * (n if row.method == "tf" else 1)) for n in (100, 1_000, 10_000)),
        RELIABILITY: tuple((k / 10, k / 10 - 0.03) for k in positions),
    }
