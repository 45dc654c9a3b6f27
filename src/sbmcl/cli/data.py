"""`sbmcl data`: data sets, fetched once and prepared for drawing episodes."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from sbmcl.cli.common import aside, shown


def prepare(
    data: Annotated[Literal["omniglot"], tyro.conf.Positional],
    /,
    source: Annotated[Path | None, tyro.conf.arg(name="from", metavar="FOLDER")] = None,
) -> None:
    """Download a data set, or take it from a folder, and prepare it.

    Args:
        data: The data set.
        source: The folder of its official archives, where they are there already; without it they are downloaded.
    """
    from sbmcl.data import omniglot

    for split in ("background", "evaluation"):
        store = omniglot.prepare(split, source)
        aside.print(
            f"{data} {split}: {len(store.class_names):,} classes, {len(store.items):,} pictures, "
            f"in [cyan]{shown(omniglot.store_path(split))}[/]"
        )
