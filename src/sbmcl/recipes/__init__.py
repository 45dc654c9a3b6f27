"""Recipes: functions without arguments that return an `Experiment`. Every cell of the paper has one.

A recipe's docstring is its page: the first line says what it is; `Time:`, `Score:` and `Paper:` lines say what to expect.
Imports no torch. To add one, write the function in the file of its benchmark and name it in that file's `RECIPES`.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sbmcl.experiment import Experiment
from sbmcl.recipes import casia, celeb, embeddings, glyphs, omniglot, pictures, sine

Recipe = Callable[[], Experiment[Any, Any]]

ALL: dict[str, Recipe] = {
    recipe.__name__.replace("_", "-"): recipe
    for module in (sine, glyphs, omniglot, casia, celeb, pictures, embeddings)
    for recipe in module.RECIPES
}


@dataclass(frozen=True)
class Page:
    """What a recipe's docstring says."""

    what: str
    time: str = ""
    score: str = ""
    paper: str = ""


def page(recipe: Recipe) -> Page:
    parts = re.split(r"^(Time|Score|Paper):", inspect.getdoc(recipe) or "", flags=re.MULTILINE)
    what, *labelled = (" ".join(part.split()) for part in parts)
    return Page(what, **dict(zip((label.lower() for label in labelled[::2]), labelled[1::2], strict=True)))
