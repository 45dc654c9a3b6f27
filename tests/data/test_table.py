"""Tables of vectors, from text to beliefs: columns in their order, bad rows by their line, GeMCL, PN and ALPaCA on them."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from sbmcl.config import PN, ALPaCA, Embeddings, GeMCL, MethodConfig
from sbmcl.data import huggingface, table
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.reading import Problems
from sbmcl.data.store import Store
from sbmcl.data.vectors import Regression, VectorEpisodes, moments


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, problems: Problems | None = None, **options) -> Store:
    return Store.of("table", table.read(path, problems or Problems(strict=True), **options))


def test_columns_keep_their_order_and_targets_go_last(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", '\ufefft,a,label,b\n1,2,"x, y",3\n4,5,z,6e-1\n')
    store = read(path)
    assert store.class_names == ("x, y", "z")
    assert store.items.tolist() == [[1, 2, 3], [4, 5, pytest.approx(0.6)]]
    assert read(path, targets=("t",)).items[:, -1].tolist() == [1, 4]


def test_bad_rows_are_counted_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "label,a,b\nx,1,2\nx,1\nx,one,2\nx,nan,2\nx,1e39,2\n\ny,3,4\n")
    problems = Problems()
    store = read(path, problems)
    assert store.items.tolist() == [[1, 2], [3, 4]]
    assert problems.total == 5
    assert f"{path}: line 3 has another number of fields than the first line (2, 3)" in problems.messages
    assert any(message.startswith(f"{path}: line 4 has a field that is no number") for message in problems.messages)
    with pytest.raises(ValueError, match="line 3"):
        read(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n", "0 columns called 'label'; its columns are a, b"),
        ("", "0 columns"),
        ("label,label,a\nx,y,1\n", "2 columns"),
        ("label\nx\n", "columns of numbers"),
        ("label,a\n" + "x" * 3_000_000 + ",1\n", "line 2: field larger"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(write(tmp_path / "t.csv", text))


def test_parquet_of_numbers_and_of_lists(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"label": ["x", "y", None, "x"], "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0]], "a": [9, 8, 7, 6]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    problems = Problems()
    store = read(tmp_path / "t.parquet", problems)
    assert store.items.tolist() == [[1, 2, 9], [3, 4, 8]]
    assert problems.total == 2


def test_parquet_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'sbmcl\[data\]'"):
        read(write(tmp_path / "t.parquet", ""))


def blobs(classes: int = 30, each: int = 25, d: int = 6) -> Store:
    """Well separated classes, far from zero and of unlike scales."""
    rng = np.random.default_rng(0)
    scale, shift = 10.0 ** np.arange(-2, d - 2), 5.0 * np.arange(d)
    parts = (
        (f"{c:02}", ((centre + 0.1 * rng.normal(size=(each, d))) * scale + shift).astype(np.float32))
        for c, centre in enumerate(rng.normal(size=(classes, d)))
    )
    return Store.of("blobs", parts)


@pytest.mark.parametrize("method", [GeMCL(depth=0), GeMCL(width=8), PN(depth=0), PN(width=8)])
def test_beliefs_over_vectors_tell_classes_apart(tmp_path: Path, cache: Path, method: MethodConfig) -> None:
    blobs().save(cache / "embeddings.safetensors")
    source = Embeddings().source("test")
    assert source is not None
    assert source.x_shape == (6,)
    torch.manual_seed(0)
    learner = method.build(source)
    episode = source.draw(EpisodeShape(5, 10, 5), 4, rng_for(0, "test", 0))
    learner.meta_loss(episode).total.backward()
    assert all(p.grad is not None for p in learner.parameters())
    with torch.no_grad():
        scores = learner.predict(learner.learn(learner.init(4), episode.stream), episode.query.x)
    assert (scores.argmax(-1) != episode.query.y).float().mean() < 0.1


def test_regression_on_vectors_is_exact_where_functions_are_linear(cache: Path) -> None:
    """Every class a linear function of its own: ALPaCA on the vectors themselves finds it from a few examples."""
    rng = np.random.default_rng(0)
    parts = []
    for c in range(20):
        x, w = rng.normal(size=(40, 3)), rng.normal(size=3)
        parts.append((str(c), np.column_stack([x, x @ w]).astype(np.float32)))
    Store.of("linear", parts).save(cache / "embeddings.safetensors")
    source = Embeddings(targets=1, standardise=False).source("test")
    assert source is not None
    assert (source.kind, source.x_shape, source.y_shape) == ("vector", (3,), (1,))
    learner = ALPaCA(depth=0).build(source)
    episode = source.draw(EpisodeShape(1, 20, 5), 4, rng_for(0, "test", 0))
    with torch.no_grad():
        state = learner.learn(learner.init(4), episode.stream)
        error = learner.score(state, episode.query)["mse"].mean()
    assert error < 0.05 * episode.query.targets.square().mean()


def test_numbers_are_standardised_by_the_meta_train_classes(cache: Path) -> None:
    blobs().save(cache / "embeddings.safetensors")
    train, test = (Embeddings(validation=0.0).source(split) for split in ("train", "test"))
    assert train is not None
    assert test is not None
    assert Embeddings(validation=0.0).source("validation") is None
    x = train.draw(EpisodeShape(20, 20, 5), 20, rng_for(0, "test", 0)).stream.x.flatten(0, 1)
    torch.testing.assert_close(x.mean(0), torch.zeros(6), atol=0.1, rtol=0)
    torch.testing.assert_close(x.std(0), torch.ones(6), atol=0.1, rtol=0)
    constant = Store.of("constant", [("a", np.ones((3, 2), np.float32))])
    assert moments(constant, torch.tensor([0]))[1].tolist() == [1, 1]


def test_pictures_and_vectors_are_not_mixed_up() -> None:
    pictures = Store.of("pictures", [("a", np.zeros((3, 1, 4, 4), np.uint8))])
    with pytest.raises(ValueError, match="holds pictures"):
        VectorEpisodes(pictures)
    with pytest.raises(ValueError, match="cannot have 6"):
        VectorEpisodes(blobs(), task=Regression(6))


class Rows(list):
    """As much of the library's data set as is used."""

    def __init__(self, rows: list[dict], features: dict):
        super().__init__(rows)
        self.features = features

    def cast_column(self, name: str, kind: object) -> "Rows":
        assert kind == "undecoded"
        return self


def test_hugging_face_rows_become_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    Image.new("RGB", (9, 7), "red").save(tmp_path / "red.png")
    picture = {"bytes": (tmp_path / "red.png").read_bytes(), "path": None}
    rows = Rows(
        [
            {"image": picture, "label": 1},
            {"image": {"bytes": None, "path": str(tmp_path / "red.png")}, "label": 0},
            {"image": {"bytes": b"bad", "path": None}, "label": 0},
            {"image": picture, "label": None},
        ],
        {"image": None, "label": SimpleNamespace(int2str=["no", "yes"].__getitem__)},
    )
    library = ModuleType("datasets")
    library.Image = lambda decode: "decoded" if decode else "undecoded"  # pyright: ignore
    library.load_dataset = lambda name, split, streaming: rows  # pyright: ignore
    library.load_from_disk = lambda name: {"train": rows}  # pyright: ignore
    monkeypatch.setitem(sys.modules, "datasets", library)
    problems = Problems()
    for name in ("someone/something", str(tmp_path)):
        store = Store.of("hf", huggingface.read(name, problems, size=8))
        assert store.class_names == ("no", "yes")
        assert store.items[:, 0].float().mean() == 255
    assert problems.total == 4
    with pytest.raises(ValueError, match="no column 'img'; its columns are image, label"):
        list(huggingface.read("someone/something", problems, image="img"))
    with pytest.raises(ValueError, match="no split 'test'; it has train"):
        list(huggingface.read(str(tmp_path), problems, split="test"))
