"""JSON lines: an example a line, as `{"x": [0.5, 1], "y": "cat", "source": "anna"}`. What is beside x is up to the reader."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sbmcl.data.reading import Problems

LONGEST = 1 << 24
"""Characters of a line."""


def read(lines: Iterable[str], where: str, problems: Problems) -> Iterator[dict[str, Any]]:
    """What stands in each line, with x as an array of finite numbers; empty lines are left out."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _example(line)
        except (ValueError, TypeError, RecursionError) as error:
            problems.add(f"{where}: line {number}", "is no example", str(error))


def _example(line: str) -> dict[str, Any]:
    if len(line) > LONGEST:
        raise ValueError(f"it has {len(line):,} characters")
    found = json.loads(line)
    if not isinstance(found, dict) or "x" not in found:
        raise ValueError('it should be an object with numbers called "x"')
    x = np.array(found["x"])
    if x.dtype.kind not in "if" or not np.isfinite(x).all():
        raise ValueError("x should hold finite numbers, as many in each of its rows")
    return found | {"x": x.astype(np.float64)}
