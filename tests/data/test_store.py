"""Stores: what comes back, what is refused, and that a failed write leaves nothing."""

import json
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sbmcl.data.store import STORE_FORMAT, Store, StoreWriter, verify


def pictures(n: int, value: int = 0) -> np.ndarray:
    return np.full((n, 1, 4, 4), value, np.uint8)


def written(path: Path, parts: Iterable[tuple[str, np.ndarray]], **options) -> Store:
    with StoreWriter(path, "tiny", **options) as writer:
        for name, items in parts:
            writer.add(name, items)
    return Store.load(path)


def test_examples_come_back_sorted_by_class(tmp_path: Path) -> None:
    parts = [("b", pictures(2, 1)), ("a", pictures(1, 2)), ("b", pictures(3, 3)), ("ä", pictures(1, 4))]
    store = written(tmp_path / "s", parts)
    assert store.class_names == ("a", "b", "ä")
    assert store.counts.tolist() == [1, 5, 1]
    assert store.items[:, 0, 0, 0].tolist() == [2, 1, 1, 3, 3, 3, 4]
    assert written(tmp_path / "s", parts, order="appearance").class_names == ("b", "a", "ä")
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]


def test_vectors_come_back(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    store = written(tmp_path / "s", [("a", vectors[:2]), ("b", vectors[2:])])
    assert np.array_equal(store.items.numpy(), vectors)
    assert store.item_shape == (3,)


def test_any_reader_of_safetensors_reads_it(tmp_path: Path) -> None:
    written(tmp_path / "s", [("a", pictures(2, 7)), ("b", pictures(1, 8))])
    plain = load_file(tmp_path / "s")
    assert plain["starts"].tolist() == [0, 2, 3]
    assert plain["items"].shape == (3, 1, 4, 4)


def test_large_stores_are_sorted_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbmcl.data.store.BLOCK", 100)
    rng = np.random.default_rng(0)
    items, label = rng.integers(0, 255, (200, 1, 4, 4), np.uint8), rng.integers(0, 9, 200)
    store = written(tmp_path / "s", ((str(c), item[None]) for c, item in zip(label, items, strict=True)))
    expected = np.concatenate([items[label == c] for c in range(9)])
    assert np.array_equal(store.items.numpy(), expected)
    verify(tmp_path / "s")


def test_small_classes_are_left_out(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", "tiny", fewest=3) as writer:
        for name, n in (("few", 2), ("many", 5), ("enough", 3)):
            writer.add(name, pictures(n, n))
    assert writer.left_out == 1
    assert Store.load(tmp_path / "s").class_names == ("enough", "many")
    with pytest.raises(ValueError, match="none of 1 classes has 3"):
        written(tmp_path / "other", [("few", pictures(2))], fewest=3)
    with pytest.raises(ValueError, match="nothing to put"):
        written(tmp_path / "other", [])
    assert not (tmp_path / "other").exists()


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written(path, [("a", pictures(2, 7))])

    def stopped() -> Iterator[tuple[str, np.ndarray]]:
        yield "a", pictures(9)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(path, stopped())
    with pytest.raises(ValueError, match="first class has"):
        written(path, [("a", pictures(2)), ("b", np.zeros((2, 3), np.float32))])
    assert Store.load(path).items.unique().tolist() == [7]
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="SBMCL_CACHE"):
            written(tmp_path / "s", [("a", pictures(500))] * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_verify_finds_a_flipped_bit(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written(path, [("a", pictures(2, 7))])
    verify(path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        verify(path)


@pytest.mark.parametrize(
    ("starts", "names", "shape"),
    [
        ([0, 2, 9], ["a", "b"], (4, 1, 2, 2)),
        ([0, 2, 4], ["a"], (4, 1, 2, 2)),
        ([0, 3, 2, 4], ["a", "b", "c"], (4, 1, 2, 2)),
        ([1, 4], ["a"], (4, 1, 2, 2)),
        ([0, 4], ["a"], (4, 2, 2)),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, starts: list[int], names: list[str], shape: tuple) -> None:
    header = {"format": STORE_FORMAT, "name": "bad", "classes": json.dumps(names)}
    tensors = {"items": torch.zeros(shape, dtype=torch.uint8), "starts": torch.tensor(starts)}
    save_file(tensors, tmp_path / "s", header)
    with pytest.raises(ValueError, match="no store that this version reads"):
        Store.load(tmp_path / "s")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    save_file({"items": torch.zeros(2, 2)}, tmp_path / "weights")
    whole = written(tmp_path / "s", [("a", pictures(2))])
    (tmp_path / "cut").write_bytes((tmp_path / "s").read_bytes()[:-5])
    for name in ("text", "weights", "cut"):
        with pytest.raises(ValueError, match=f"{name} is no store"):
            Store.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="data prepare"):
        Store.load(tmp_path / "nothing")
    assert len(whole.items) == 2
