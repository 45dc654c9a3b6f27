"""What it costs each method to go on, as its stream grows: bytes of state, milliseconds to learn and to answer.

    python benchmarks/stream_cost.py sine-alpaca sine-online
    python benchmarks/stream_cost.py sine-alpaca sine-offline --lengths 100 1000 10000 --results cost.jsonl

prints a table, one line a recipe and one column a length. Networks are not trained first: weights do not change a cost.
"""

from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.table import Table

from sbmcl.cost import LENGTHS, cost
from sbmcl.evaluate import Trained
from sbmcl.recipes import ALL
from sbmcl.results import LEARN_MS, QUERY_MS, STATE_BYTES, append
from sbmcl.runs import hardware

TITLES = {
    STATE_BYTES: "bytes of state",
    LEARN_MS: "milliseconds to learn one more example",
    QUERY_MS: "milliseconds to answer a query",
}


def main(
    recipes: Annotated[tuple[str, ...], tyro.conf.Positional],
    /,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    seconds: float = 0.5,
    device: str = "cpu",
    threads: int = 1,
    results: Path | None = None,
) -> None:
    torch.set_num_threads(threads)
    place = torch.device(device)
    rows = {name: cost(untrained(name, place), lengths, seconds=seconds) for name in recipes}
    console = Console()
    for metric, title in TITLES.items():
        table = Table(title=f"{title}, by examples learned", caption=hardware(place), box=None)
        table.add_column("recipe")
        for length in lengths:
            table.add_column(f"{length:,}", justify="right")
        for name, found in rows.items():
            curve = next(row.curve for row in found if row.metric == metric) or ()
            table.add_row(name, *(f"{value:,.0f}" if metric == STATE_BYTES else f"{value:.3g}" for _, value in curve))
        console.print(table, "")
    if results is not None:
        append(results, [row for found in rows.values() for row in found])


def untrained(recipe: str, device: torch.device) -> Trained:
    experiment = ALL[recipe]()
    source = experiment.data.source("train")
    assert source is not None, "only a validation split may be switched off"
    torch.manual_seed(0)
    return Trained(experiment, experiment.method.build(source).to(device).eval(), 0, 0.0, hardware(device), device)


if __name__ == "__main__":
    tyro.cli(main)
