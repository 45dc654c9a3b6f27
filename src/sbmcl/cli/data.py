"""`sbmcl data`: any source into one store, and what is in a store."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sbmcl.cli.common import Exit, Failure, aside, console, shown

if TYPE_CHECKING:
    from sbmcl.data.reading import Classed, Problems
    from sbmcl.data.store import Store

Source = Literal["omniglot", "casia", "celeb", "folder", "arrays", "table", "huggingface"]


def prepare(
    source: Annotated[Source, tyro.conf.Positional],
    /,
    origin: Annotated[str | None, tyro.conf.arg(name="from", metavar="PATH")] = None,
    name: str | None = None,
    size: int = 32,
    fit: Literal["stretch", "pad"] = "stretch",
    colour: Literal["auto", "grey", "rgb"] = "auto",
    fewest: int = 20,
    label: str = "label",
    targets: tuple[str, ...] = (),
    strict: bool = False,
) -> None:
    """Turn a data set into a store: a public one, or your own.

    Args:
        source: omniglot, casia and celeb are public sets; folder is a folder of pictures for each class; arrays is an .npz
            file with x and y; table is a CSV or Parquet file of vectors; huggingface is a data set of that hub.
        origin: Where it is: the folder of a public set's archives (without it they are downloaded), your folder or file, or
            the name of a Hugging Face data set.
        name: What the store is called; without it, pictures or embeddings.
        size: Pictures of your own become squares of so many pixels a side.
        fit: Stretch other shapes to a square, or pad them with white.
        colour: Keep grey or colours; auto is grey where all classes begin with a grey picture.
        fewest: Classes of fewer examples are left out; an episode of 10 shots and 10 queries needs 20.
        label: The column of labels, in tables and Hugging Face data sets.
        targets: Columns of a table that a regression is to predict from the others.
        strict: Refuse the first record that cannot be used, instead of skipping and counting such records.
    """
    from sbmcl.data import casia, celeb, omniglot
    from sbmcl.data.reading import Problems
    from sbmcl.data.store import Store, StoreWriter, named_store

    problems = Problems(strict)
    path = None if origin is None else Path(origin)
    if source == "omniglot":
        for split in omniglot.SPLITS:
            told(omniglot.prepare(split, path, problems), omniglot.store_path(split))
    elif source == "casia":
        told(casia.prepare(path, problems), casia.store_path())
    elif origin is None or path is None:
        raise Failure(f"say where it is: sbmcl data prepare {source} --from PATH", Exit.USAGE)
    elif source == "celeb":
        told(celeb.prepare(path, problems), celeb.store_path())
    else:
        channels = {"auto": None, "grey": 1, "rgb": 3}[colour]
        parts = own(source, origin, problems, size=size, fit=fit, channels=channels, label=label, targets=targets)
        first = next(parts, None)
        if first is None:
            raise ValueError(
                f"{origin} has no example that could be used{': ' if problems.total else ''}{'; '.join(problems.messages)}"
            )
        called = named_store(name or ("pictures" if first[1].ndim == 4 else "embeddings"))
        with StoreWriter(called, called.stem, fewest=fewest) as writer:
            for class_name, items in counted(first, parts):
                writer.add(class_name, items)
        told(Store.load(called), called)
        if writer.left_out:
            aside.print(f"{writer.left_out:,} classes of fewer than {fewest} examples were left out (--fewest)")
    for message in problems.messages:
        aside.print(f"skipped: {message}", markup=False, soft_wrap=True)
    if problems.total:
        aside.print(f"{problems.total:,} records were skipped; --strict refuses them instead")


def own(
    source: Source,
    origin: str,
    problems: "Problems",
    *,
    size: int,
    fit: Literal["stretch", "pad"],
    channels: int | None,
    label: str,
    targets: tuple[str, ...],
) -> "Classed":
    from sbmcl.data import arrays, folder, huggingface, table

    if source == "folder":
        return folder.read(Path(origin), problems, size=size, channels=channels, fit=fit)
    if source == "arrays":
        return arrays.read(Path(origin), problems, size=size, fit=fit)
    if source == "table":
        return table.read(Path(origin), problems, label=label, targets=targets)
    return huggingface.read(origin, problems, label=label, size=size, channels=channels or 3, fit=fit)


def counted(first: "tuple", parts: "Classed") -> "Classed":
    """The same parts, counted on a terminal while they pass."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    def every() -> Iterator:
        yield first
        yield from parts

    with Progress(SpinnerColumn(), TextColumn("{task.completed:,} examples"), console=aside, transient=True) as bar:
        task = bar.add_task("", total=None)
        for part in every():
            yield part
            bar.advance(task, len(part[1]))


def told(store: "Store", path: Path) -> None:
    aside.print(
        f"{store.name}: {len(store.class_names):,} classes, {len(store.items):,} examples, in [cyan]{shown(path)}[/]"
    )


def info(
    store: Annotated[str, tyro.conf.Positional],
    /,
    sheet: Path | None = None,
) -> None:
    """What is in a store: classes, examples, how many of each, and a sheet of pictures.

    Args:
        store: Its name, or its path.
        sheet: Write a picture of some classes, a row each, to this PNG file.
    """
    from sbmcl.data.sheet import contact_sheet
    from sbmcl.data.store import Store, named_store

    path = named_store(store)
    found = Store.load(path)
    counts = found.counts
    kind = "pictures" if len(found.item_shape) == 3 else "vectors"
    console.print(f"[bold]{found.name}[/]  {shown(path)}  {path.stat().st_size / 1e6:,.1f} MB")
    console.print(f"{len(found.items):,} {kind} of {' x '.join(map(str, found.item_shape))} in {len(counts):,} classes")
    console.print(
        f"examples of a class: {int(counts.min()):,} to {int(counts.max()):,}, median {int(counts.median()):,}"
    )
    for low, high, classes in histogram(counts.tolist()):
        bar = "█" * max(1, round(40 * classes / len(counts)))
        console.print(f"  {f'{low:,}' if low == high else f'{low:,} to {high:,}':>18}  {bar} {classes:,}")
    if sheet is not None:
        contact_sheet(found).save(sheet)
        console.print(f"some of them: [cyan]{shown(sheet)}[/]")


def histogram(counts: list[int], bins: int = 8) -> list[tuple[int, int, int]]:
    """Smallest and largest count and the classes between, in bins of one width; empty bins are left out."""
    width = -(-(max(counts) - min(counts) + 1) // bins)
    found: dict[int, int] = {}
    for count in counts:
        place = (count - min(counts)) // width
        found[place] = found.get(place, 0) + 1
    first = min(counts)
    return [(first + place * width, first + place * width + width - 1, found[place]) for place in sorted(found)]


def verify(store: Annotated[str, tyro.conf.Positional], /) -> None:
    """Check every byte of a store against the checksum it was written with.

    Args:
        store: Its name, or its path.
    """
    from sbmcl.data.store import named_store
    from sbmcl.data.store import verify as check

    found = check(named_store(store))
    console.print(f"{found.name} is whole: {len(found.class_names):,} classes, {len(found.items):,} examples")
