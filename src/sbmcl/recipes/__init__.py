"""Recipes: functions without arguments that return an `Experiment`. Every cell of the paper has one.

A recipe's docstring is its page: the first line says what it is; `Time:`, `Score:` and `Paper:` lines say what to expect.
Imports no torch. To add one, write the function in the file of its benchmark and name it in that file's `RECIPES`.
"""

from collections.abc import Callable
from typing import Any

from sbmcl.experiment import Experiment
from sbmcl.recipes import omniglot, sine

Recipe = Callable[[], Experiment[Any, Any]]

ALL: dict[str, Recipe] = {
    recipe.__name__.replace("_", "-"): recipe for module in (sine, omniglot) for recipe in module.RECIPES
}
