"""The run-time checker behind the shapes in signatures: beartype, blind to `Self`, which it knows in decorated classes only."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any})))
