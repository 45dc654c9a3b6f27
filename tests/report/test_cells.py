"""The paper's cells joined with rows: which entry stands where, how far apart the two are, and what that is called."""

from collections import Counter
from dataclasses import replace

import pytest
from made_up import ROW, rows_like

from sbmcl.recipes import ALL
from sbmcl.report.cells import (
    Entry,
    Measured,
    Published,
    Standing,
    answers,
    published_recipe,
    read_paper,
    standing,
    standing_entries,
)


def sine_cell() -> Published:
    return next(c for c in read_paper() if (c.table, c.method, c.question.task) == ("tab:reg", "sbmcl", "regression"))


def test_the_paper_has_all_its_numbers() -> None:
    counts = Counter(cell.table for cell in read_paper())
    assert sum(counts.values()) == 557
    assert counts["tab:clf"] == 21
    assert counts["app:casia_compl_tasks"] == 48


def test_printed_digits_are_kept() -> None:
    cell = sine_cell()
    assert (cell.value, cell.std, cell.decimals) == (0.0011, 0.0002, 4)


def test_every_recipe_that_cells_name_and_exists_answers_their_benchmark() -> None:
    for cell in read_paper():
        name = published_recipe(cell.question.benchmark, cell.method)
        if name in ALL:
            experiment = ALL[name]()
            assert (experiment.benchmark, experiment.label) == (
                cell.question.benchmark,
                cell.method.removesuffix("-map"),
            )


def test_distance_is_in_units_of_both_spreads() -> None:
    rows = tuple(replace(ROW, seed=seed, value=value) for seed, value in enumerate((0.0015, 0.0018, 0.0021)))
    assert sine_cell().distance(Measured(rows)) == pytest.approx(0.0007 / (0.0002**2 + 0.0003**2) ** 0.5)


def test_distance_knows_that_the_paper_rounds() -> None:
    cell = replace(sine_cell(), std=0.0)
    exact = Measured((replace(ROW, value=0.00112, ci95=0.0),))
    assert cell.distance(exact) == pytest.approx(0.00002 / 0.00005)


@pytest.mark.parametrize(
    ("changes", "value", "expected"),
    [
        ({}, 0.0012, Standing.REPRODUCED),
        ({}, 0.0003, Standing.BETTER),
        ({}, 0.0100, Standing.WORSE),
        ({"steps": 7_000}, 0.0011, Standing.REDUCED_REACHED),
        ({"budget": "30m"}, 0.0100, Standing.REDUCED_SHORT),
        ({"recipe": "sine-alpaca-quick"}, 0.0011, Standing.REDUCED_REACHED),
    ],
)
def test_standing(changes: dict[str, object], value: float, expected: Standing) -> None:
    found = answers([replace(ROW, value=value, **changes)])  # pyright: ignore[reportArgumentType]
    ((entry, ours),) = found[sine_cell().question].items()
    assert standing(sine_cell(), entry, ours) is expected


def test_learning_from_scratch_has_no_steps_to_cut() -> None:
    cell = next(c for c in read_paper() if c.method == "offline" and c.question.benchmark == "sine/regression")
    row = rows_like(cell, episodes=20)
    assert row.steps == 0
    assert standing(cell, Entry("offline", row.recipe, None), Measured((row,))) is Standing.REPRODUCED


def test_the_entry_of_a_cell_is_chosen_by_training_never_by_score() -> None:
    full, quick = ROW, replace(ROW, recipe="sine-alpaca-quick", value=0.0001, steps=7_000)
    other = replace(ROW, recipe="sine-alpaca-deep", value=0.0001)
    chosen = standing_entries(answers([quick, other, full]))
    assert chosen["sine/regression", "sbmcl", "sine"].recipe == "sine-alpaca"
    assert standing_entries(answers([quick, other]))["sine/regression", "sbmcl", "sine"].recipe == "sine-alpaca-quick"
    assert not standing_entries(answers([other])), "another architecture answers no cell of the paper"
    assert standing_entries(answers([replace(ROW, recipe="sine-alpaca-robust")])), (
        "the published one, trained otherwise, does"
    )


def test_of_two_rows_of_the_same_thing_the_newest_counts() -> None:
    old, new = replace(ROW, value=1.0), replace(ROW, value=2.0, date="2026-02-01T00:00:00Z")
    for rows in ([old, new], [new, old]):
        (measured,) = answers(rows)[sine_cell().question].values()
        assert [row.value for row in measured.rows] == [2.0]
