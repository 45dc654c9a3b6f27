"""Data sets of the Hugging Face hub, or saved by their library in a folder: a column of pictures and one of labels."""

from pathlib import Path
from typing import Any

from sbmcl.data.reading import Classed, Fit, Problems, decode


def read(
    name: str,
    problems: Problems,
    *,
    split: str = "train",
    image: str = "image",
    label: str = "label",
    size: int = 32,
    channels: int = 3,
    fit: Fit = "stretch",
) -> Classed:
    """Row by row, as a stream where it comes from the hub. Labels are named as the data set names them."""
    rows = _rows(name, split)
    columns = list(rows.features or {})
    for column in (image, label):
        if column not in columns:
            raise ValueError(f"{name} has no column {column!r}; its columns are {', '.join(columns)}")
    named = getattr(rows.features[label], "int2str", str)
    rows = rows.cast_column(image, _library().Image(decode=False))
    for number, row in enumerate(rows):
        where = f"{name}: row {number}"
        if row[label] is None:
            problems.add(where, "has no label")
            continue
        try:
            picture = decode(_bytes(row[image]), size, channels, fit=fit)
        except (ValueError, OSError) as error:
            problems.add(where, "cannot be read", str(error))
            continue
        yield str(named(row[label])), picture[None]


def _rows(name: str, split: str) -> Any:
    library = _library()
    if not Path(name).is_dir():
        return library.load_dataset(name, split=split, streaming=True)
    found = library.load_from_disk(name)
    if isinstance(found, dict):
        if split not in found:
            raise ValueError(f"{name} has no split {split!r}; it has {', '.join(found)}")
        found = found[split]
    return found


def _bytes(stored: dict[str, Any]) -> bytes:
    """An undecoded picture is its bytes, or the path of its file."""
    return stored["bytes"] if stored.get("bytes") is not None else Path(stored["path"]).read_bytes()


def _library() -> Any:
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("Hugging Face data sets need their library: pip install 'sbmcl[data]'") from error
    return datasets
