"""One experiment as plain data: what is drawn, what learns, how it is trained. `sbmcl train` makes a run folder of it.

Imports no torch until something is built, so that listings and `--help` are instant.
"""

import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Generic, Literal, Self, TypeVar, Union, get_args, get_origin

from sbmcl.config import DataConfig, MethodConfig, Training

D = TypeVar("D", bound=DataConfig)
M = TypeVar("M", bound=MethodConfig)


@dataclass(frozen=True)
class Experiment(Generic[D, M]):
    """Data, method and training together; `sbmcl train` makes a run folder of it."""

    recipe: str
    benchmark: str
    """As in the paper's tables: data set, slash, what is done with it."""
    label: str
    """The method's name in tables; `sbmcl` is the family's own entry of a benchmark."""
    data: D
    method: M
    training: Training = field(default_factory=Training)
    seed: int = 0
    budget: str | None = None
    """The time that `training.steps` were fitted to, such as 15m; None: they are as many as the recipe says."""

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads back to an equal experiment."""
        plain = asdict(self)
        for part in ("data", "method"):
            plain[part] = {"type": type(getattr(self, part)).__name__, **plain[part]}
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        plain = dict(plain)
        for part, known in (("data", DataConfig.tags), ("method", MethodConfig.tags)):
            settings = dict(plain[part])
            tag = settings.pop("type", None)
            if tag not in known:
                raise ValueError(f"no {part} config is called {tag!r}; known are {', '.join(sorted(known))}")
            plain[part] = _from_plain(known[tag], settings)
        plain["training"] = _from_plain(Training, plain["training"])
        return _from_plain(cls, plain)


def _from_plain(cls: Any, plain: dict[str, Any]) -> Any:
    known = {f.name: f for f in fields(cls)}
    foreign = sorted(set(plain) - set(known))
    if foreign:
        raise ValueError(
            f"{cls.__name__} has no setting {', '.join(foreign)}; this file is of another version of sbmcl"
        )
    values = dict(plain)
    for name, value in values.items():
        kind = known[name].type
        if is_dataclass(kind) and isinstance(value, dict):
            values[name] = _from_plain(kind, value)
        else:
            _check_type(f"{cls.__name__}.{name}", value, kind)
    return cls(**values)


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Plain JSON values only: numbers, strings, truth values and literals; objects are checked where they are built."""
    origin = get_origin(kind)
    if origin is Literal:
        fits = value in get_args(kind)
    elif kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif kind is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif isinstance(kind, type) and origin is None:
        fits = isinstance(value, kind)
    else:
        fits = isinstance(kind, TypeVar) or origin in (Union, types.UnionType)
    if not fits:
        raise ValueError(f"{name} is {value!r}, which does not fit {kind}")
