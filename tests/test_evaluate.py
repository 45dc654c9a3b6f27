"""Evaluation against episodes drawn, learned and asked one by one, with figures by hand and by scikit-learn."""

import json
import math
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from methods import alpaca, gemcl, pictures, pn
from sbmcl import evaluate as asking
from sbmcl import results
from sbmcl.config import DATA, PN, ALPaCA, DataConfig, Sine, Training
from sbmcl.data.episodes import EpisodeSource
from sbmcl.data.sine import SineSource
from sbmcl.evaluate import Question, Trained, evaluate, load, queries_for, questions, settings
from sbmcl.experiment import Experiment
from sbmcl.results import Row
from sbmcl.runs import RunFolder
from sbmcl.state import state_bytes

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Tiny(DataConfig):
    """Six classes of eight pictures, two of them asked for at most."""

    name: ClassVar[str] = "tiny"

    def source(self, split: str, device: Any = "cpu") -> EpisodeSource:
        source = pictures()
        source.query_cap = 2  # pyright: ignore[reportAttributeAccessIssue]
        return source


def trained(data: DataConfig, method: Any, seed: int = 0) -> Trained:
    experiment = Experiment(f"{data.name}-recipe", f"{data.name}/something", "sbmcl", data, PN(), seed=seed)
    return Trained(experiment, method.eval(), step=7, train_seconds=1.25, train_hardware="an abacus")


@pytest.fixture(scope="module")
def classifier() -> Trained:
    torch.manual_seed(0)
    return trained(Tiny(), gemcl(Tiny().source("test"), count=0.5))


@pytest.fixture(scope="module")
def regressor() -> Trained:
    torch.manual_seed(0)
    return trained(Sine(), alpaca(SineSource()))


def rows_of(trained: Trained, pair: tuple[int, int], episodes: int = 6, **options: Any) -> dict[str, Row]:
    (rows,) = evaluate(trained, [pair], episodes=episodes, **options)
    return {row.metric: row for row in rows}


def question(trained: Trained, pair: tuple[int, int], **options: Any) -> Question:
    (asked,) = questions(trained, [pair], **options)
    return asked


@torch.no_grad()
def one_by_one(trained: Trained, pair: tuple[int, int], episodes: int = 6, **options: Any) -> dict[str, np.ndarray]:
    """Scores by episode and query, each episode alone and its stream learned at once."""
    asked, method, scores = question(trained, pair), trained.method, {}
    for number in range(episodes):
        episode = asked.episode(number)
        state = method.learn(method.init(1), episode.stream)
        for name, score in method.score(state, episode.query, **options).items():
            scores.setdefault(name, []).append(score[0].double().numpy())
    return {name: np.stack(score) for name, score in scores.items()}


@pytest.mark.parametrize("at_mode", [False, True])
@pytest.mark.parametrize(("which", "metrics"), [("classifier", {"error", "nll"}), ("regressor", {"mse", "nll"})])
def test_rows_are_means_over_episodes_asked_one_by_one(
    request: pytest.FixtureRequest, which: str, metrics: set[str], at_mode: bool
) -> None:
    subject: Trained = request.getfixturevalue(which)
    rows, right = rows_of(subject, (4, 3), at_mode=at_mode), one_by_one(subject, (4, 3), at_mode=at_mode)
    assert metrics <= set(rows)
    assert "confidence" not in rows
    for name in metrics:
        by_episode = right[name].mean(1)
        assert rows[name].value == pytest.approx(by_episode.mean(), rel=1e-4)
        assert rows[name].std == pytest.approx(by_episode.std(ddof=1), rel=1e-3)
        assert rows[name].ci95 == pytest.approx(1.96 * by_episode.std(ddof=1) / math.sqrt(6), rel=1e-3)
    metric = subject.method.head.metric
    assert rows[metric].scores == pytest.approx(right[metric].mean(1), abs=1e-4)
    assert all(row.scores is None for name, row in rows.items() if name != metric)


@pytest.mark.parametrize("which", ["classifier", "regressor"])
def test_neither_batches_nor_chunks_matter(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    subject: Trained = request.getfixturevalue(which)
    right = {name: row.value for name, row in rows_of(subject, (4, 3)).items()}
    for chunk, examples in ((1_000, 1), (5, 5_000), (1, 30), (12, 16)):
        monkeypatch.setattr(asking, "CHUNK", chunk)
        monkeypatch.setattr(asking, "ROOM", {"cpu": (examples, 2 << 30)})
        found = {name: row.value for name, row in rows_of(subject, (4, 3)).items()}
        assert found == pytest.approx(right, rel=1e-3, abs=1e-6)


def test_every_method_is_asked_the_same(classifier: Trained) -> None:
    other = trained(Tiny(), pn(pictures()), seed=5)
    drawn = [
        [episode for episode, _ in question(subject, (3, 2)).draw(5, size, CPU)]
        for subject, size in ((classifier, 1), (other, 1 << 30))
    ]
    assert len(drawn[0]) == 1
    assert len(drawn[1]) == 3  # two states of a gigabyte fit at a time
    one, many = (torch.cat([episode.query.x for episode in episodes]) for episodes in drawn)
    assert torch.equal(one, many)


def test_episodes_differ_by_number_setting_and_split(regressor: Trained) -> None:
    asked = question(regressor, (3, 2))
    first = asked.episode(0).stream.x
    assert torch.equal(first, question(regressor, (3, 2)).episode(0).stream.x)
    assert not torch.equal(first, asked.episode(1).stream.x)
    assert not torch.equal(first[:, 0], question(regressor, (4, 2)).episode(0).stream.x[:, 0])
    assert not torch.equal(first, question(regressor, (3, 2), split="validation").episode(0).stream.x)


def test_calibration_and_novelty_pool_all_queries(classifier: Trained) -> None:
    rows, right = rows_of(classifier, (4, 3)), one_by_one(classifier, (4, 3))
    confidence, correct = right["confidence"].ravel(), 1 - right["error"].ravel()
    bins = np.clip(np.ceil(confidence * 15) - 1, 0, 14)
    ece = sum(abs((correct - confidence)[bins == b].sum()) for b in range(15)) / len(bins)
    assert rows["ece"].value == pytest.approx(ece, abs=1e-5)

    method, known, novel = classifier.method, [], []
    for number in range(6):
        episode = question(classifier, (4, 3)).episode(number)
        with torch.no_grad():
            state = method.learn(method.init(1), episode.stream[:6])  # the first two of four tasks
            novelty = method.novelty(state, episode.query.x)[0]
        known += novelty[episode.query.task[0] < 2].tolist()
        novel += novelty[episode.query.task[0] >= 2].tolist()
    assert len(known) == len(novel) == 6 * 4
    right_auroc = roc_auc_score([0] * len(known) + [1] * len(novel), known + novel)
    assert rows["novelty_auroc"].value == pytest.approx(right_auroc, abs=1e-6)
    assert rows["ece"].std is None


@pytest.mark.parametrize(("tasks", "asked"), [(1, False), (2, True), (3, True)])
def test_novelty_needs_a_task_that_is_not_learned(classifier: Trained, tasks: int, asked: bool) -> None:
    assert ("novelty_auroc" in rows_of(classifier, (tasks, 3), episodes=2)) == asked


def test_rows_say_where_they_come_from(classifier: Trained) -> None:
    row = rows_of(classifier, (4, 3))["error"]
    told = asdict(row)
    expected = {
        "benchmark": "tiny/something",
        "method": "sbmcl",
        "meta_train": "tiny",
        "meta_test": "tiny",
        "tasks": 4,
        "shots": 3,
        "recipe": "tiny-recipe",
        "seed": 0,
        "episodes": 6,
        "queries": 2,
        "steps": 7,
        "train_seconds": 1.2,
        "train_hardware": "an abacus",
    }
    assert {name: told[name] for name in expected} == expected
    assert row.eval_seconds > 0
    assert row.peak_memory_bytes > 1 << 20
    assert row.date.endswith("Z")
    assert rows_of(classifier, (4, 3), at_mode=True)["error"].method == "sbmcl-map"


def test_rows_join_the_papers_numbers(classifier: Trained) -> None:
    paper = json.loads(files("sbmcl.assets").joinpath("paper_results.json").read_text())
    keys = set(paper[0]) - {"table", "runs", "note"}
    assert keys <= set(asdict(rows_of(classifier, (4, 3))["error"]))


def test_the_state_of_one_stream_is_counted(classifier: Trained, regressor: Trained) -> None:
    for subject in (classifier, regressor):
        with torch.no_grad():
            state = subject.method.learn(subject.method.init(1), question(subject, (4, 3)).episode(0).stream)
        assert {row.state_bytes for row in rows_of(subject, (4, 3)).values()} == {state_bytes(state)}
    short, long = (rows_of(regressor, pair, episodes=2)["mse"].state_bytes for pair in ((2, 2), (20, 10)))
    assert short == long  # it does not grow with the stream


def test_evaluating_twice_adds_rows_and_replaces_none(tmp_path: Path, classifier: Trained) -> None:
    path = tmp_path / "results.jsonl"
    for at_mode in (False, True):
        for rows in evaluate(classifier, [(3, 2), (4, 2)], episodes=2, at_mode=at_mode):
            results.append(path, rows)
    before = path.read_text()
    for rows in evaluate(classifier, [(3, 2)], episodes=2):
        results.append(path, rows)
    assert path.read_text().startswith(before)
    errors = [(row.method, row.tasks) for row in results.read([path]) if row.metric == "error"]
    assert errors == [("sbmcl", 3), ("sbmcl", 4), ("sbmcl-map", 3), ("sbmcl-map", 4), ("sbmcl", 3)]


def test_what_cannot_be_asked_is_refused_before_any_work(classifier: Trained) -> None:
    with pytest.raises(ValueError, match="6 classes here, fewer than 7 tasks"):
        next(evaluate(classifier, [(3, 2), (7, 2)], episodes=2))
    with pytest.raises(ValueError, match="8 examples, fewer than 7 shots and 2 queries"):
        next(evaluate(classifier, [(3, 2), (3, 7)], episodes=2))
    with pytest.raises(ValueError, match="no data set is called 'moon'"):
        next(evaluate(classifier, [(3, 2)], episodes=2, on="moon"))


def test_other_data_is_named_in_the_row_and_has_to_fit(
    classifier: Trained, regressor: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Elsewhere(Tiny):
        name: ClassVar[str] = "elsewhere"

    monkeypatch.setitem(DATA, "elsewhere", Elsewhere)
    row = rows_of(classifier, (3, 2), on="elsewhere")["error"]
    assert (row.benchmark, row.meta_train, row.meta_test) == ("tiny/something", "tiny", "elsewhere")
    with pytest.raises(ValueError, match="networks were made for sine"):
        rows_of(regressor, (3, 2), on="elsewhere")


def test_queries_by_the_rule_of_the_paper() -> None:
    assert [queries_for(k, 50) for k in (5, 10, 20, 50, 100, 200, 500)] == [50, 50, 50, 20, 10, 5, 2]
    assert [queries_for(k, 10) for k in (5, 10, 20, 50, 100, 200, 500)] == [10, 10, 10, 10, 10, 5, 2]
    assert queries_for(2_000, 50) == 1


def test_settings_are_the_two_axes_of_the_paper() -> None:
    assert settings((10, 20, 500), (10, 50)) == [(10, 10), (20, 10), (500, 10), (10, 50)]
    assert settings((1_000, 1_001), (1_000, 1_001)) == [(1_000, 10), (10, 1_000)]  # 10,000 examples are the most
    assert len(settings(asking.TASKS, asking.SHOTS)) == 10


def test_a_run_is_loaded_with_the_weights_that_did_best(tmp_path: Path) -> None:
    experiment = Experiment("r", "sine/regression", "sbmcl", Sine(), ALPaCA(width=4, hidden=4), Training(steps=3), 5)
    run = RunFolder.create(tmp_path / "run", experiment, CPU)
    for which, value, step in (("last", 0.5, 3), ("best", 0.25, 2)):
        method = experiment.method.build(SineSource())
        torch.nn.init.constant_(method.prior_mean, value)
        run.save_weights(which, method, step)  # pyright: ignore[reportArgumentType]
    run.log(step=1, seconds=4.0)
    run.log(step=3, seconds=12.0)
    run.log(step=3, validation=0.1)
    for which, value, step in ((None, 0.25, 2), ("last", 0.5, 3), ("best", 0.25, 2)):
        found = load(run.path, CPU, which)  # pyright: ignore[reportArgumentType]
        assert (found.step, found.train_seconds) == (step, 12.0)
        assert (found.method.prior_mean == value).all()
        assert not found.method.training  # a batch-norm must keep to its running averages
        assert found.experiment == experiment
