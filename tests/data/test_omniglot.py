"""Reading Omniglot: from a zip made here, and from the official ones where they are to be had."""

import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sbmcl.config import Omniglot
from sbmcl.data import omniglot
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.images import ImageEpisodes

CHARACTERS = {"Latin/character01": 3, "Latin/character02": 2, "Greek/character01": 4}


def drawing(seed: int) -> bytes:
    """A 1-bit picture of 105 x 105, as the official ones: ink is 0."""
    ink = np.random.default_rng(seed).random((15, 15)) < 0.3
    picture = Image.fromarray(np.kron(~ink, np.ones((7, 7), bool)))
    assert picture.mode == "1"
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def write_zip(path: Path, characters: dict[str, int] = CHARACTERS, *, backwards: bool = False) -> Path:
    """The official layout, with folders as members of their own and something that is no picture."""
    members = [
        (f"images_background/{character}/{10 * number + i:04}_{i:02}.png", drawing(100 * number + i))
        for number, (character, count) in enumerate(characters.items())
        for i in range(count)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("images_background/", b"")
        for name, data in members[::-1] if backwards else members:
            file.writestr(name, data)
        file.writestr("images_background/notes.txt", b"no picture")
    return path


def test_characters_are_classes_by_name_with_their_drawings(tmp_path: Path) -> None:
    store = omniglot.read_zip(write_zip(tmp_path / "o.zip"), "made")
    assert store.class_names == ("Greek/character01", "Latin/character01", "Latin/character02")
    assert store.starts.tolist() == [0, 4, 7, 9]
    assert store.items.shape == (9, 1, 32, 32)
    assert store.items.dtype == torch.uint8
    first_latin = Image.open(io.BytesIO(drawing(0))).convert("L").resize((32, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(store.items[4, 0], np.asarray(first_latin))
    assert store.items.float().mean() > 127  # ink is dark and there is less of it


def test_the_order_inside_the_zip_does_not_matter(tmp_path: Path) -> None:
    one, other = (omniglot.read_zip(write_zip(tmp_path / f"{b}.zip", backwards=b), "made") for b in (False, True))
    assert torch.equal(one.items, other.items)
    assert one.class_names == other.class_names


def test_stores_are_made_once_from_a_local_folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_zip(tmp_path / "omniglot" / "images_background.zip")
    monkeypatch.setenv("SBMCL_DATA", str(tmp_path))
    made = omniglot.load("background")
    archive.unlink()
    again = omniglot.load("background")
    assert torch.equal(made.items, again.items)
    assert made.class_names == again.class_names
    assert [path.name for path in cache.iterdir()] == ["omniglot-background.safetensors"]


def test_missing_data_names_the_command_that_gets_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBMCL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="sbmcl data prepare omniglot"):
        omniglot.load("evaluation")
    with pytest.raises(FileNotFoundError, match=r"images_evaluation.zip is missing"):
        omniglot.prepare("evaluation", tmp_path)


def flipped(data: bytes) -> bytes:
    """One bit in the middle of the first picture."""
    at = data.index(b"IDAT") + 20 if b"IDAT" in data else 120
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def undecodable(data: bytes) -> bytes:
    """The first compressed block of the first picture is of a kind that does not exist."""
    at = data.index(b".png") + len(b".png")
    return data[:at] + b"\xff" + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"<html>not found</html>",
        flipped,
        undecodable,
        lambda data: data.replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xeb"),
        lambda data: data[:-4] + b"\xff" + data[-3:],
    ],
    ids=[
        "cut short",
        "empty",
        "a web page",
        "a flipped bit",
        "an impossible block",
        "an unknown method",
        "an end out of place",
    ],
)
def test_a_damaged_zip_says_so_and_leaves_no_store(
    tmp_path: Path, cache: Path, damage: Callable[[bytes], bytes]
) -> None:
    archive = write_zip(tmp_path / "images_background.zip")
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(ValueError, match=r"images_background.zip is no whole zip file.*fetch it again"):
        omniglot.prepare("background", tmp_path)
    assert not list(cache.glob("*"))


def test_a_zip_of_something_else_says_so(tmp_path: Path) -> None:
    for name, members in {"none": ["readme.txt"], "flat": ["one.png"]}.items():
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as file:
            for member in members:
                file.writestr(member, drawing(0))
        with pytest.raises(ValueError, match="not an Omniglot archive"):
            omniglot.read_zip(tmp_path / f"{name}.zip", "other")


def test_a_picture_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "o.zip", "w") as file:
        file.writestr("images/Latin/character01/0001_01.png", b"no picture")
    with pytest.raises(ValueError, match=r"Latin/character01/0001_01.png cannot be read"):
        omniglot.read_zip(tmp_path / "o.zip", "other")


@pytest.fixture
def prepared(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both splits, tiny: 20 background characters and 10 of evaluation, three drawings each."""
    for split, count in (("background", 20), ("evaluation", 10)):
        names = {f"{split.title()}{i // 5}/character{i % 5:02}": 3 for i in range(count)}
        write_zip(tmp_path / "omniglot" / f"images_{split}.zip", names)
    monkeypatch.setenv("SBMCL_DATA", str(tmp_path))


def source(config: Omniglot, split: str) -> ImageEpisodes:
    found = config.source(split)  # pyright: ignore[reportArgumentType]
    assert isinstance(found, ImageEpisodes)
    return found


def names(source: ImageEpisodes) -> set[str]:
    """Of the classes drawn from, by where they start in the store."""
    places = torch.searchsorted(source.store.starts, source.starts)
    return {source.store.class_names[i] for i in places}


@pytest.mark.usefixtures("prepared")
def test_splits_share_no_character() -> None:
    train, validation, test = (source(Omniglot(), split) for split in ("train", "validation", "test"))
    assert (len(names(train)), len(names(validation)), len(names(test))) == (18, 2, 10)
    assert not names(train) & names(validation)
    assert all(name.startswith("Evaluation") for name in names(test))
    assert all(name.startswith("Background") for name in names(train) | names(validation))
    assert (train.classes, validation.classes, test.classes) == (18 * 8, 2, 10)
    assert {s.query_cap for s in (train, validation, test)} == {10}


@pytest.mark.usefixtures("prepared")
def test_all_of_meta_train_can_be_trained_on_as_published() -> None:
    config = Omniglot(validation=0.0)
    assert config.source("validation") is None
    assert source(config, "train").classes == 20 * 8
    assert source(Omniglot(orientations=1), "train").classes == 18


@pytest.mark.usefixtures("prepared")
def test_only_meta_train_is_jittered_and_turned() -> None:
    config = Omniglot(degrees=10.0, shift=0.1)
    assert source(config, "train").jitter
    for split in ("validation", "test"):
        plain = source(config, split)
        assert not plain.jitter
        assert plain.orientations == 1
        drawn = plain.draw(EpisodeShape(2, 1, 1), 5, rng_for(0, "test", 0)).stream.x
        known = {picture.numpy().tobytes() for picture in plain.store.items}
        assert all(((x + 1) * 127.5).round().byte().numpy().tobytes() in known for x in drawn.flatten(0, 1))


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("task", "kind"), [("completion", "image"), ("rotation", "angle"), ("generation", "generation")]
)
def test_every_task_can_be_asked(task: str, kind: str) -> None:
    assert source(Omniglot(task=task), "test").kind == kind  # pyright: ignore[reportArgumentType]


def test_shares_are_checked() -> None:
    with pytest.raises(ValueError, match="share of the classes"):
        Omniglot(validation=1.0)


@pytest.mark.parametrize(("split", "classes"), [("background", 964), ("evaluation", 659)])
def test_the_official_zips(omniglot_zips: Path, split: str, classes: int) -> None:
    """By what is in them, since an archive packed anew has another checksum."""
    store = omniglot.read_zip(omniglot_zips / f"images_{split}.zip", split)
    assert len(store.class_names) == len(set(store.class_names)) == classes
    assert set(store.counts.tolist()) == {20}
    assert store.class_names == tuple(sorted(store.class_names))
    alphabets = {name.split("/")[0] for name in store.class_names}
    assert len(alphabets) == {"background": 30, "evaluation": 20}[split]
    assert 230 < store.items.float().mean() < 245  # thin dark strokes on white
    pixels = hashlib.sha256(store.items.numpy().tobytes()).hexdigest()[:16]
    assert pixels == {"background": "6b18266251fb73a5", "evaluation": "df47123bbbef97e6"}[split]


def test_the_official_meta_train_classes(omniglot_zips: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBMCL_DATA", str(omniglot_zips.parent))
    train, validation = source(Omniglot(), "train"), source(Omniglot(), "validation")
    assert (train.classes, validation.classes) == (868 * 8, 96)
    held = "\n".join(sorted(names(validation)))
    assert hashlib.sha256(held.encode()).hexdigest()[:16] == "27c415a93431f26f"
    assert source(Omniglot(validation=0.0), "train").classes == 7_712
