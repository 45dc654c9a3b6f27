"""Rows on disk: appended whole, read back equal, and refused with file and line where they are none."""

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import stdev

import pytest

from sbmcl.results import Row, append, mean_and_spread, read

ROW = Row(
    *("sine/regression", "sbmcl", "sine", "sine", 10, 10, "mse", 0.5, 0.1, 0.01, "sine-alpaca", 0, 4, 50, 100),
    *(1.0, 2.0, 8, 16, "here", "there", None, "2026-01-01T00:00:00Z"),
)


def test_rows_come_back_equal(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, scores=(0.25, 0.75), curve=((0.0, 1.0), (1.0, 0.5)), std=None, budget="30m")]
    append(tmp_path / "deep" / "rows.jsonl", rows)
    append(tmp_path / "deep" / "rows.jsonl", rows[:1])
    assert read([tmp_path]) == [*rows, ROW]


def test_keys_of_another_version_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({**asdict(ROW), "later": 1}) + "\n")
    assert read([tmp_path]) == [ROW]


def test_what_is_no_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append(path, [ROW])
    with path.open("a") as file:
        file.write('{"step": 1}\n')
    with pytest.raises(ValueError, match=r"line 2 of .*rows\.jsonl is no result row"):
        read([path])
    with pytest.raises(FileNotFoundError, match="sbmcl evaluate RUN"):
        read([tmp_path / "missing.jsonl"])


def _append_many(path: Path, seed: int) -> None:
    for _ in range(20):
        append(path, [replace(ROW, seed=seed, scores=tuple([0.5] * 500))])


def test_writers_side_by_side_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(_append_many, [path] * 4, range(4)))
    assert sorted(row.seed for row in read([path])) == sorted([0, 1, 2, 3] * 20)


def test_mean_and_spread() -> None:
    scores = [0.1, 0.2, 0.6]
    found = mean_and_spread(scores)
    assert found["value"] == pytest.approx(0.3)
    assert found["std"] == pytest.approx(stdev(scores))
    assert found["ci95"] == pytest.approx(1.96 * stdev(scores) / 3**0.5)
    assert mean_and_spread([0.5]) == {"value": 0.5, "std": None, "ci95": None}
