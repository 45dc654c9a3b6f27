"""Labels of classes and names of sources: any hashable value, in one order for all, and as JSON where it has to be kept."""

import json
import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from torch import Tensor


def listed(labels: Iterable[Any]) -> list[Hashable]:
    """As plain Python values: what NumPy or torch wraps is the number or text inside."""
    if isinstance(labels, np.ndarray | Tensor):
        if labels.ndim != 1:
            raise ValueError(f"there has to be one label for each example, but labels have shape {tuple(labels.shape)}")
        labels = labels.tolist()
    return [named(label) for label in labels]


def named(label: Any) -> Hashable:
    if type(label) is str or type(label) is int:
        return label
    if isinstance(label, np.generic | Tensor):
        label = label.item()
    if isinstance(label, float) and math.isnan(label):
        raise ValueError(
            "a label is NaN, which is not even equal to itself; give such examples a name, or leave them out"
        )
    try:
        hash(label)
    except TypeError as error:
        raise ValueError(f"the label {label!r} cannot be hashed; use a tuple in place of a list") from error
    return label


def place_in_order(label: Hashable) -> tuple[int, float, str]:
    """A sort key: numbers by size, then texts, then all others by how they are written."""
    if isinstance(label, bool | int | float):
        return (0, label, "")
    if isinstance(label, str):
        return (1, 0, label)
    try:
        return (2, 0, json.dumps(to_json(label)))
    except ValueError:
        return (3, 0, repr(label))


def to_json(label: Hashable) -> Any:
    match label:
        case None | bool() | int() | str():
            return label
        case float():
            return {"float": label.hex()}
        case bytes():
            return {"bytes": label.hex()}
        case tuple():
            return {"tuple": [to_json(part) for part in label]}
    raise ValueError(
        f"{label!r} is a {type(label).__name__}, which a file cannot keep; label with text, numbers, truth values, bytes, "
        f"None or tuples of them"
    )


def from_json(plain: Any) -> Hashable:
    match plain:
        case None | bool() | int() | str():
            return plain
        case {"float": str(text), **rest} if not rest:
            return named(float.fromhex(text))
        case {"bytes": str(text), **rest} if not rest:
            return bytes.fromhex(text)
        case {"tuple": [*parts], **rest} if not rest:
            return tuple(from_json(part) for part in parts)
    raise ValueError(f"{str(plain)[:80]} is no label")


def as_array(labels: list[Hashable]) -> np.ndarray:
    """Of the narrowest type that keeps them as they are, as scikit-learn has its classes."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and kinds <= {bool, float, str}:
        return np.array(labels)
    if kinds == {int} and all(abs(label) < 1 << 63 for label in labels):  # pyright: ignore[reportArgumentType]
        return np.array(labels, np.int64)
    found = np.empty(len(labels), object)
    for at, label in enumerate(labels):  # all at once, tuples would become rows
        found[at] = label
    return found
