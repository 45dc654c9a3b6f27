"""The run-time checker behind the shapes in signatures: beartype, blind to `Self`, which it knows in decorated classes only.

An integer will do for a float, as it does for every type checker.
"""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

check = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: Any}), is_pep484_tower=True))
