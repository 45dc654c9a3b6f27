"""Experiments are plain data, and every recipe is one that can be built."""

import json
import math
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from sbmcl.check import check
from sbmcl.cli.common import Failure
from sbmcl.cli.recipes import checked
from sbmcl.config import ALPaCA, Omniglot, Sine, Training
from sbmcl.data.episodes import EpisodeShape
from sbmcl.experiment import Experiment
from sbmcl.recipes import ALL, Page, page
from sbmcl.report.cells import published_recipe, read_paper

EXPERIMENT = Experiment(
    "tiny", "sine/regression", "sbmcl", Sine(), ALPaCA(width=4, hidden=4), Training(steps=3), seed=5
)


def through_json(experiment: Experiment[Any, Any]) -> Experiment[Any, Any]:
    return Experiment.from_json(json.loads(json.dumps(experiment.to_json())))


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_survives_json(name: str) -> None:
    experiment = ALL[name]()
    again = through_json(experiment)
    assert again == experiment
    assert type(again.method) is type(experiment.method)
    assert type(again.data) is type(experiment.data)


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_goes_by_its_own_name_and_explains_itself(name: str) -> None:
    experiment = ALL[name]()
    assert experiment.recipe == name
    assert name.startswith(experiment.data.name)
    assert experiment.benchmark.split("/")[0] == experiment.data.name
    assert "/" in experiment.benchmark
    assert (ALL[name].__doc__ or "").strip()


def test_recipes_quote_the_paper_as_it_is() -> None:
    """At 10 tasks, 10 shots, from the table that the main text prints; a recipe that is cut or changed quotes it too."""
    cells = [cell for cell in read_paper() if cell.table in ("tab:clf", "tab:reg", "tab:gen")]
    printed = {(c.question.benchmark, c.method): f"{c.value:.{c.decimals}f}" for c in cells}
    for name, recipe in ALL.items():
        experiment, quoted = recipe(), page(recipe).paper.split(" ")[0]
        if quoted:
            assert quoted == printed[experiment.benchmark, experiment.label], name


def test_every_cell_of_the_paper_has_a_recipe() -> None:
    missing = {published_recipe(cell.question.benchmark, cell.method) for cell in read_paper()} - set(ALL)
    assert not missing


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_takes_a_step_and_answers(name: str) -> None:
    check(ALL[name]())


def test_a_recipe_that_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Experiment[Sine, ALPaCA]:
        return replace(EXPERIMENT, method=ALPaCA(width=4, hidden=4, noise=math.inf))

    monkeypatch.setitem(ALL, "broken", broken)
    monkeypatch.setitem(ALL, "sound", lambda: EXPERIMENT)
    pages = {name: Page("") for name in ("broken", "sound")}
    with pytest.raises(Failure, match="1 of 2"):
        checked(pages)
    told = capsys.readouterr().out
    assert "fails  broken: ValueError: tiny has a loss of nan in its first step" in told
    assert "runs   sound" in told


def test_all_settings_survive_json() -> None:
    training = Training(11, 3, EpisodeShape(4, 5, 6), 0.5, "cosine", 7, 8, 0.25, 1.0, 0.5, "bf16", True, 9, 10, 11, 12)
    experiment = replace(EXPERIMENT, data=Omniglot("rotation", 0.0, 1, 1.0), training=training, seed=9)
    assert through_json(experiment) == experiment
    assert all(getattr(training, f.name) != f.default for f in fields(Training))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"steps": 1.5}}, "Training.steps is 1.5"),
        ({"training": {"steps": True}}, "Training.steps is True"),
        ({"training": {"schedule": "linear"}}, "Training.schedule is 'linear'"),
        ({"training": {"lr": "1e-3"}}, "Training.lr is '1e-3'"),
        ({"training": {"shape": {"tasks": 0}}}, "at least one of its tasks"),
        ({"training": {"shape": {"ways": 5}}}, "EpisodeShape has no setting ways"),
        ({"method": {"loss": "mae"}}, "ALPaCA.loss is 'mae'"),
        ({"seed": "zero"}, "Experiment.seed is 'zero'"),
        ({"colour": "red"}, "Experiment has no setting colour"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    plain = EXPERIMENT.to_json()
    for name, value in change.items():
        plain[name] = {**plain[name], **value} if isinstance(value, dict) else value
    with pytest.raises(ValueError, match=message):
        Experiment.from_json(plain)


def test_a_setting_left_out_is_its_default() -> None:
    plain = EXPERIMENT.to_json()
    del plain["training"]["ema"]
    del plain["seed"]
    assert Experiment.from_json(plain) == replace(EXPERIMENT, seed=0)


def test_recipes_are_listed_without_torch() -> None:
    """It takes seconds to import, and a listing should take none."""
    code = "import sys, sbmcl.recipes; [r() for r in sbmcl.recipes.ALL.values()]; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "False"
