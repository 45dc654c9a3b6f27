"""StreamLearner against other libraries and slow clear loops: what it predicts, what it refuses, what a run makes of it."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import NearestCentroid
from torch import nn

from sbmcl import StreamLearner, demo
from sbmcl.beliefs import IsotropicGaussian, NormalGamma
from sbmcl.config import PN, ALPaCA, Embeddings, GeMCL, Online, Pictures, Training
from sbmcl.config.base import DataConfig, MethodConfig
from sbmcl.data.store import Store
from sbmcl.episode import Examples
from sbmcl.evaluate import load
from sbmcl.experiment import Experiment
from sbmcl.runs import RunFolder

BELIEFS = ("isotropic", "normal-gamma")


def blobs(n: int = 60, dim: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(n) % 3
    return rng.normal(size=(n, dim)) + 3 * rng.normal(size=(3, dim))[y], np.array(["cat", "dog", "eel"])[y]


def learner(belief: Any = "normal-gamma", dim: int | None = 4, **options: Any) -> StreamLearner:
    return StreamLearner.from_encoder(None, belief, dim=dim, **options)


def a_run(folder: Path, data: DataConfig, method: MethodConfig) -> RunFolder:
    """As if it had been trained: weights that somebody once drew."""
    experiment = Experiment("test", "test/test", "test", data, method, Training(steps=1))
    run = RunFolder.create(folder, experiment, torch.device("cpu"))
    torch.manual_seed(0)
    source = data.source("train")
    assert source is not None
    net = method.build(source)
    for module in net.modules():  # as training leaves them
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, std=0.1)  # pyright: ignore
    run.save_weights("last", net, 1)
    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    Store.of("v", ((f"k{i}", rng.normal(i, 2.0, (9, 5)).astype(np.float32)) for i in range(12))).save(
        tmp_path / "v.safetensors"
    )
    return tmp_path / "v.safetensors"


def test_importing_the_library_imports_no_torch() -> None:
    script = "import sys, sbmcl; assert 'torch' not in sys.modules; assert sbmcl.StreamLearner.load"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_prototypes_are_nearest_centroids() -> None:
    """With as many examples of each class, and a flat prior."""
    X, y = blobs()
    queries = np.random.default_rng(1).normal(size=(200, 4)) * 4
    ours = learner("isotropic", exact=False).partial_fit(X, y)
    theirs = NearestCentroid().fit(X, y)
    assert (ours.predict(queries) == theirs.predict(queries)).all()
    assert ours.score(X, y) == theirs.score(X, y)
    assert (ours.classes_ == theirs.classes_).all()


def test_probabilities_are_those_of_student_s_t() -> None:
    X, y = blobs()
    got = learner(exact=False).partial_fit(X, y).predict_proba(X[:5])
    for x, row in zip(X[:5], got, strict=True):
        density = []
        for label in ("cat", "dog", "eel"):
            seen, total = X[y == label], 0.0
            for d in range(4):
                n, mean = len(seen), seen[:, d].mean()
                a, b = 1 + n / 2, 1 + ((seen[:, d] - mean) ** 2).sum() / 2
                total += stats.t.logpdf(x[d], 2 * a, mean, math.sqrt(b * (n + 1) / (a * n)))
            density.append(total)
        np.testing.assert_allclose(row, np.exp(density - np.logaddexp.reduce(density)), rtol=1e-9)


def test_regression_is_ridge_with_its_uncertainty() -> None:
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(30, 4)), rng.normal(size=(4, 2))
    y = X @ W + 0.1 * rng.normal(size=(30, 2))
    ours = learner("matrix-normal", targets=2, exact=False).partial_fit(X[:11], y[:11]).partial_fit(X[11:], y[11:])
    theirs = Ridge(alpha=1.0, fit_intercept=False).fit(X, y)
    found, x = ours.predict_distribution(X), X[0]
    np.testing.assert_allclose(found.mean, theirs.predict(X), rtol=1e-9)
    np.testing.assert_allclose(found.aleatoric, 0.01)
    spread = x @ np.linalg.inv(X.T @ X + np.eye(4)) @ x
    np.testing.assert_allclose(found.epistemic[0], 0.01 * spread)
    np.testing.assert_allclose(ours.novelty(X)[0], spread)
    assert math.isclose(ours.score(X, y), float(r2_score(y, theirs.predict(X))), rel_tol=1e-9)


def test_one_target_is_a_column_or_a_list() -> None:
    X = np.random.default_rng(0).normal(size=(9, 4))
    flat, column = (learner("matrix-normal").partial_fit(X, y) for y in (X[:, 0], X[:, :1]))
    assert flat.predict(X).shape == (9,)
    assert flat.digest() == column.digest()


@pytest.mark.parametrize("belief", BELIEFS)
def test_novelty_tells_what_was_never_seen(belief: str) -> None:
    X, y = blobs()
    one = learner(belief).partial_fit(X, y)
    assert one.novelty(X).max() < one.novelty(X + 100).min()


@pytest.mark.parametrize("belief", BELIEFS)
@pytest.mark.parametrize("exact", [True, False])
def test_learning_one_by_one_with_questions_between_is_learning_at_once(belief: str, exact: bool) -> None:
    """Questions leave nothing behind, and what was kept for them is brought up to date."""
    X, y = blobs(12)
    slow, whole = learner(belief, exact=exact), learner(belief, exact=exact).partial_fit(X, y)
    for t in range(12):
        slow.partial_fit(X[t : t + 1], y[t : t + 1], source=t % 2)
        before = slow.digest()
        slow.predict_proba(X)
        slow.novelty(X)
        slow.predict(X, confidence=0.9)
        assert slow.digest() == before
    np.testing.assert_allclose(slow.predict_proba(X), whole.predict_proba(X), rtol=1e-9)
    for t in (3, 4):
        slow.forget(X[t : t + 1], y[t : t + 1], source=t % 2)
    rest = [t for t in range(12) if t not in (3, 4)]
    right = learner(belief, exact=exact).partial_fit(X[rest], y[rest])
    np.testing.assert_allclose(slow.predict_proba(X), right.predict_proba(X), rtol=1e-8)
    assert slow.predict_proba(X).tobytes() == right.predict_proba(X).tobytes() or not exact


def test_memory_between_queries_and_classes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs()
    one = learner().partial_fit(X, y)
    whole = one.predict_proba(X), one.novelty(X)
    monkeypatch.setattr("sbmcl.stream.learner.ROOM", 50)
    np.testing.assert_allclose(one.predict_proba(X), whole[0])
    np.testing.assert_allclose(one.novelty(X), whole[1])


def test_a_sure_answer_or_none() -> None:
    X, y = blobs()
    one = learner().partial_fit(X, y)
    sure = one.predict_proba(X).max(1) >= 0.99
    assert 0 < sure.sum() < len(X)
    answers = one.predict(X, confidence=0.99)
    assert (answers[sure] == one.predict(X)[sure]).all()
    assert all(answer is None for answer in answers[~sure])
    assert set(one.predict(X, confidence=0.99, otherwise="?")[~sure]) == {"?"}


@pytest.mark.parametrize(
    "labels",
    [
        [3, -1, 10**30],
        [True, False, True],
        [0.5, -math.inf, 2.0],
        ["b", "", "a"],
        [("a", 1), ("a", 0), ()],
        [None, "x", 7],
        [b"\x00", b"", "b"],
        [frozenset({1}), frozenset(), "z"],
    ],
)
def test_labels_are_anything_that_can_be_hashed(labels: list[Any]) -> None:
    X = np.diag([9.0, -9.0, 5.0])
    one = learner("isotropic", dim=3).partial_fit(X, labels)
    assert list(one.predict(X)) == labels
    assert set(one.classes_.tolist()) == set(labels) == set(one.counts_)
    assert one.predict_proba(X).shape == (3, len(set(labels)))
    assert one.score(X, labels) == 1.0


def test_classes_are_sorted_as_scikit_learn_has_them() -> None:
    X, y = blobs()
    for labels in (y, np.unique(y, return_inverse=True)[1] * 7 - 3, y == "cat"):
        one = learner().partial_fit(X, labels)
        assert one.classes_.tolist() == np.unique(labels).tolist()
        assert one.predict(X).dtype.kind == labels.dtype.kind


def test_numbers_of_classes_are_never_given_twice() -> None:
    X = np.eye(4)
    one = learner().partial_fit(X[:2], ["b", "a"]).partial_fit(X[2:3], ["c"], source="s")
    assert one.class_ids_ == {"a": 1, "b": 0, "c": 2}
    one.forget(source="s")
    one.partial_fit(X[2:4], ["d", "c"])
    assert one.class_ids_ == {"a": 1, "b": 0, "c": 4, "d": 3}
    other = learner().partial_fit(X[:2], ["e", "b"])
    assert one.merge(other).class_ids_ == {"a": 1, "b": 0, "c": 4, "d": 3, "e": 5}


@pytest.mark.parametrize(
    ("X", "y", "what"),
    [
        ([[1.0, 2, 3, math.nan]], ["a"], "not finite"),
        ([[1.0, 2, 3, math.inf]], ["a"], "not finite"),
        ([[1.0, 2, 3]], ["a"], "shape"),
        ([1.0, 2, 3, 4], ["a"], "rows"),
        ([[1.0, 2, 3, 4]], ["a", "b"], "1 examples, but y has 2"),
        ([["a", "b", "c", "d"]], ["a"], "real numbers"),
        ([[1.0, 2, 3, 1e9]], ["a"], "does not fit the grid"),
        ([[1.0, 2, 3, 4]], [math.nan], "NaN"),
        ([[1.0, 2, 3, 4]], [["a"]], "cannot be hashed"),
        ([[1.0, 2, 3, 4]], np.array([["a"]]), "one label for each"),
    ],
)
def test_what_cannot_be_learned_is_refused_and_changes_nothing(X: Any, y: Any, what: str) -> None:
    one = learner().partial_fit(*blobs())
    before = one.digest()
    with pytest.raises(ValueError, match=what):
        one.partial_fit(X, y)
    assert one.digest() == before


def test_what_cannot_be_asked_is_refused() -> None:
    fresh, X = learner(), np.eye(4)
    for ask in (fresh.predict, fresh.predict_proba, fresh.novelty, fresh.predict_distribution):
        with pytest.raises(ValueError, match="nothing has been learned"):
            ask(X)
    line = learner("matrix-normal").partial_fit(X, X[0])
    with pytest.raises(ValueError, match="no classes"):
        line.predict_proba(X)
    with pytest.raises(ValueError, match="no classes"):
        line.predict(X, confidence=0.5)
    with pytest.raises(ValueError, match="no mean and variance"):
        learner().partial_fit(X, "abcd").predict_distribution(X)
    with pytest.raises(ValueError, match="finite numbers"):
        line.partial_fit(X, np.full(4, math.nan))
    with pytest.raises(ValueError, match="dim="):
        StreamLearner.from_encoder(None, "isotropic")


def test_arrays_of_all_kinds_are_the_same_examples() -> None:
    X = np.arange(24.0).reshape(6, 4)
    right = learner().partial_fit(X, list("aabbcc")).digest()
    still = X.copy()
    still.setflags(write=False)
    back = np.ascontiguousarray(X[::-1])[::-1]
    for same in (X.astype(np.float32), X.astype(int), torch.tensor(X), X.tolist(), still, back, X.astype(">f8")):
        assert learner().partial_fit(same, list("aabbcc")).digest() == right


def test_any_frozen_encoder() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match=r"\.eval\(\)"):
        StreamLearner.from_encoder(net, dim=4)
    net.eval()
    x = torch.randn(9, 3, 2, 2)
    one = StreamLearner.from_encoder(net, dim=4).partial_fit(x, list("abcabcabc"))
    codes = net(x).detach()
    by_hand = StreamLearner.from_encoder(None, dim=4).partial_fit(codes, list("abcabcabc"))
    np.testing.assert_allclose(one.predict_proba(x), by_hand.predict_proba(codes), rtol=1e-3)
    with pytest.raises(ValueError, match="not the same encoder"):
        one.merge(by_hand)
    other = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4)).eval()
    with pytest.raises(ValueError, match="not the same encoder"):
        one.merge(StreamLearner.from_encoder(other, dim=4))
    like = [nn.Sequential(nn.Flatten(), net[1], last).eval() for last in (nn.ReLU(), nn.Tanh())]
    with pytest.raises(ValueError, match="not the same encoder"):
        StreamLearner.from_encoder(like[0], dim=4).merge(StreamLearner.from_encoder(like[1], dim=4))
    with pytest.raises(ValueError, match="codes of 5"):
        StreamLearner.from_encoder(net, dim=5).partial_fit(x, list("abcabcabc"))


def test_an_exact_learner_sees_examples_alone() -> None:
    """An encoder that cheats, and looks at the others: exact learners do not let it."""

    def cheat(x: torch.Tensor) -> torch.Tensor:
        return x + len(x)

    X, y = blobs()
    with pytest.raises(ValueError, match="name="):
        StreamLearner.from_encoder(lambda x: x, dim=4)
    whole, parts = (StreamLearner.from_encoder(cheat, dim=4, name="cheat") for _ in range(2))
    whole.partial_fit(X, y)
    for half in (slice(40, None), slice(40)):
        parts.partial_fit(X[half], y[half])
    assert whole.digest() == parts.digest()
    rough = StreamLearner.from_encoder(cheat, dim=4, name="cheat", exact=False).partial_fit(X, y)
    assert rough.verify_forgotten([(X[:40], y[:40]), (X[40:], y[40:])]) > 1e-3


def test_a_prior_of_one_s_own() -> None:
    X, y = blobs()
    zero, one = torch.zeros(1, 1, 4), torch.ones(1, 1, 1)
    for prior in (NormalGamma.of(zero, 0.1 * one, 3 * one, zero + 2), IsotropicGaussian.of(zero, one, one.squeeze())):
        ours = learner(prior, dim=None).partial_fit(X, y)
        assert ours.score(X, y) > 0.9
        with pytest.raises(ValueError, match="not the same prior"):
            ours.merge(learner("normal-gamma"))


@pytest.mark.parametrize(
    "method", [GeMCL(width=3, tempered=True), PN(width=3, precision=0.5), GeMCL(depth=0, count=0.1)]
)
def test_a_run_of_classes_predicts_as_its_method_does(tmp_path: Path, store: Path, method: MethodConfig) -> None:
    run = a_run(tmp_path / "run", Embeddings(store=str(store)), method)
    ours = StreamLearner.load(run.path, exact=False)
    trained = load(run.path, torch.device("cpu"))
    source = trained.experiment.data.source("train")
    assert source is not None
    raw = Store.load(store).items[:27]
    x = source.prepare(raw[None, None], torch.zeros(1, 1).long(), torch.Generator())[0]  # pyright: ignore
    label = torch.arange(27) // 9
    net = trained.method
    with torch.no_grad():
        state = net.learn(net.init(1), Examples(x, label.unsqueeze(0), label.unsqueeze(0)))
        right = net.predict(state, x)[0].softmax(1)
        novelty = net.novelty(state, x)
    got = ours.partial_fit(raw, label)
    np.testing.assert_allclose(got.predict_proba(raw), right, rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(got.novelty(raw), novelty[0], rtol=1e-2, atol=1e-3)  # pyright: ignore


def test_a_run_of_regression_answers_in_the_units_of_the_data(tmp_path: Path, store: Path) -> None:
    run = a_run(tmp_path / "run", Embeddings(store=str(store), targets=2), ALPaCA(depth=0))
    vectors = np.concatenate([Store.load(store).items.numpy()] * 9)
    X = vectors[:, :3]
    ours = StreamLearner.load(run.path, exact=False)
    x_scale, y_scale = ours.encoder.x_scale, ours.encoder.y_scale
    assert x_scale is not None
    assert y_scale is not None
    y = (X - x_scale.mean.numpy()) @ np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]) + y_scale.mean.numpy()
    found = ours.partial_fit(X, y).predict_distribution(X)
    assert np.abs(found.mean - y).max() < 0.1
    assert ours.score(X, y) > 0.99
    np.testing.assert_allclose(found.aleatoric[0], 0.01 * y_scale.deviation.numpy() ** 2, rtol=1e-5)


def test_a_run_of_pictures_takes_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (12, 5, 1, 16, 16), dtype=np.uint8)
    Store.of("p", ((f"k{i}", part) for i, part in enumerate(pictures))).save(tmp_path / "p.safetensors")
    run = a_run(tmp_path / "run", Pictures(store=str(tmp_path / "p.safetensors")), GeMCL(width=4))
    x = pictures[:3].reshape(15, 1, 16, 16)
    y = np.repeat(["a", "b", "c"], 5)
    whole = StreamLearner.load(run.path).partial_fit(x, y)
    floats = StreamLearner.load(run.path).partial_fit(torch.tensor(x).float() / 127.5 - 1, y)
    assert whole.digest() == floats.digest()
    parts = [StreamLearner.load(run.path).partial_fit(x[i::2], y[i::2]) for i in range(2)]
    assert parts[1].merge(parts[0]).digest() == whole.digest()


def test_a_run_that_keeps_no_sums_is_refused(tmp_path: Path) -> None:
    experiment = demo.sine_experiment(1)
    run = a_run(tmp_path / "run", experiment.data, replace(experiment.method, width=4, hidden=4))
    assert StreamLearner.load(run.path).partial_fit(np.eye(50)[:2], np.eye(50)[:2]).predict(np.eye(50)[:1]).shape == (
        1,
        50,
    )
    run = a_run(tmp_path / "online", experiment.data, Online())
    with pytest.raises(ValueError, match="a run of GeMCL, PN or ALPaCA"):
        StreamLearner.load(run.path)
