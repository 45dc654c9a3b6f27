"""Arrays in `.npz` files: pictures and vectors of every layout, labels of every type, and files that lie."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbmcl.data import arrays
from sbmcl.data.reading import Problems
from sbmcl.data.store import Store


def save(path: Path, **parts: np.ndarray) -> Path:
    np.savez(path, **parts)  # pyright: ignore[reportArgumentType]
    return path


def read(path: Path, problems: Problems | None = None, **options) -> Store:
    return Store.of("arrays", arrays.read(path, problems or Problems(strict=True), **options))


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    "y", [np.array([3, 1, 3]), np.array(["b", "a", "b"]), np.array([b"x", b"w", b"x"]), np.array([2.5, 1, 2.5])]
)
def test_labels_are_of_any_type(tmp_path: Path, y: np.ndarray) -> None:
    x = pictures(3, 32, 32)
    store = read(save(tmp_path / "a.npz", x=x, y=np.array(y)))
    assert store.counts.tolist() == [1, 2]
    assert np.array_equal(store.items[:, 0].numpy(), x[[1, 0, 2]])


@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 8, 8, 1), (4, 1, 8, 8), (4, 8, 8, 3), (4, 3, 8, 8)])
def test_pictures_are_of_any_layout(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = pictures(*shape)
    store = read(save(tmp_path / "a.npz", x=x, y=np.arange(4)), size=8)
    channels = 3 if 3 in shape else 1
    expected = x.reshape(4, 1, 8, 8) if channels == 1 else x if shape[1] == 3 else x.transpose(0, 3, 1, 2)
    assert np.array_equal(store.items.numpy(), expected)
    assert read(tmp_path / "a.npz", size=5).item_shape == (channels, 5, 5)


def test_many_rows_are_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "ROWS", 7)
    x, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 4
    store = read(save(tmp_path / "a.npz", x=x, y=y))
    assert np.array_equal(store.items.numpy(), np.concatenate([x[y == c] for c in range(4)]).astype(np.float32))


def test_vectors_that_are_not_finite_are_counted_or_refused(tmp_path: Path) -> None:
    x = np.ones((4, 2))
    x[2, 1] = np.nan
    path = save(tmp_path / "a.npz", x=x, y=np.zeros(4, int))
    problems = Problems()
    assert len(read(path, problems).items) == 3
    assert problems.messages == [f"{path}: row 2 of x has numbers that are not finite"]
    with pytest.raises(ValueError, match="row 2"):
        read(path)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"x": np.zeros((2, 3))}, "no array 'y'"),
        ({"y": np.zeros(2)}, "no array 'x'"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(3)}, "3 labels, but x has 2"),
        ({"x": np.zeros((2, 3)), "y": np.zeros((2, 1))}, "one label for each row"),
        ({"x": np.zeros((2, 3, 3)), "y": np.zeros(2)}, "float64 of 3 dimensions"),
        ({"x": pictures(2, 4, 4, 2), "y": np.zeros(2)}, "1 or 3 channels"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0)}, "at least one row"),
        ({"x": np.asfortranarray(np.zeros((4, 3))), "y": np.zeros(4)}, "Fortran"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, parts: dict[str, np.ndarray], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(save(tmp_path / "a.npz", **parts))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(ValueError, match="plain array"):
        read(path)


def test_a_header_that_promises_a_terabyte_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name, shape in (("x", (1 << 30, 1024)), ("y", (1 << 30,))):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
            file.writestr(f"{name}.npy", header.getvalue() + b"few")
    with pytest.raises(ValueError, match="y ends in row 3 of"):
        read(path)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 600), st.binary(max_size=6))
def test_damage_never_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "a.npz"
    whole = save(path, x=np.ones((4, 2)), y=np.arange(4)).read_bytes()
    path.write_bytes(whole[:at] + patch + whole[at + len(patch) :])
    try:
        found = len(read(path, Problems()).items)
    except ValueError as error:
        found, message = 0, str(error)
        assert str(path) in message or "nothing to put" in message
    assert found <= 4
