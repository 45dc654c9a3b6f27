"""A learner on a disk: what was saved comes back, a kill loses nothing and doubles nothing, and no file is trusted."""

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_stream_learner import a_run, blobs
from torch import nn

from sbmcl import StreamLearner
from sbmcl.config import ALPaCA, Embeddings, GeMCL
from sbmcl.data.store import Store
from sbmcl.stream import files, journal

FIXTURE = Path(__file__).parent / "learner-1"


def vectors(belief: Any = "normal-gamma", **options: Any) -> StreamLearner:
    return StreamLearner.from_encoder(None, belief, dim=4, **options)


def taught(belief: Any = "normal-gamma", **options: Any) -> StreamLearner:
    """Three classes, two named sources, one class that was forgotten."""
    X, y = blobs(30)
    one = vectors(belief, **options)
    y = X[:, 0] if belief == "matrix-normal" else y
    one.partial_fit(X[:5], y[:5]).partial_fit(X[5:20], y[5:20], source="anna").partial_fit(X[20:], y[20:], source=7)
    one.forget(X[:1], y[:1])
    return one


def the_fixture() -> StreamLearner:
    """What `learner-1` was written from: .save(FIXTURE, journal=True), then the last line once more."""
    X = np.arange(24).reshape(6, 4) / 8 - 1
    return vectors().partial_fit(X[:4], ["cat", ("dog", None), 7, "cat"], source="anna").partial_fit(X[4:5], [b"\x00"])


def same(one: StreamLearner, other: StreamLearner) -> bool:
    X = blobs(9, seed=1)[0]
    return (
        one.digest() == other.digest()
        and one.sources_ == other.sources_
        and one._known.ids == other._known.ids
        and all(
            (a == b).all()
            for a, b in zip(one.belief().naturals.values(), other.belief().naturals.values(), strict=True)
        )
        and one.predict(X).tolist() == other.predict(X).tolist()
    )


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("belief", ["isotropic", "normal-gamma", "matrix-normal"])
def test_what_was_saved_comes_back(tmp_path: Path, belief: str, exact: bool) -> None:
    one = taught(belief, exact=exact)
    one.save(tmp_path / "a")
    again = StreamLearner.load(tmp_path / "a")
    assert same(one, again)
    X, y = blobs(3, seed=2)
    for each in (one, again):
        each.forget(source="anna")
        each.partial_fit(X, X[:, 0] if belief == "matrix-normal" else y)
    assert same(one, again)
    again.save(tmp_path / "a")
    assert same(one, StreamLearner.load(tmp_path / "a"))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["learner.json", "lock", "state-2.safetensors"]


def test_labels_and_sources_come_back_as_what_they_were(tmp_path: Path) -> None:
    labels = ["", "é", "7", 7, 10**30, -0.5, float("inf"), True, None, b"\xff", (), ("a", (1, None)), "__class__"]
    one = vectors("isotropic").partial_fit(np.ones((len(labels), 4)), labels, source=("x", 1))
    one.save(tmp_path)
    again = StreamLearner.load(tmp_path)
    assert again.counts_ == one.counts_
    assert [type(label) for label in again.counts_] == [type(label) for label in one.counts_]
    assert again.sources_ == {("x", 1): len(labels)}
    with pytest.raises(ValueError, match="frozenset, which a file cannot keep"):
        vectors().partial_fit(np.ones((1, 4)), [frozenset()]).save(tmp_path / "b")
    assert not files.holds_learner(tmp_path / "b")


@pytest.mark.parametrize(("method", "targets"), [(GeMCL(width=3, tempered=True), 0), (ALPaCA(width=3, hidden=4), 1)])
def test_a_learner_of_a_run_needs_neither_run_nor_data(tmp_path: Path, method: Any, targets: int) -> None:
    rng = np.random.default_rng(0)
    data = {f"k{i}": rng.normal(i, 2.0, (9, 5)).astype(np.float32) for i in range(12)}
    Store.of("v", data.items()).save(tmp_path / "v.safetensors")
    a_run(tmp_path / "run", Embeddings(store=str(tmp_path / "v.safetensors"), targets=targets), method)
    one = StreamLearner.load(tmp_path / "run")
    X = data["k3"][:, : 5 - targets]
    one.partial_fit(X, data["k3"][:, 4] if targets else ["x", "y", "z"] * 3)
    with pytest.raises(ValueError, match="is a run"):
        one.save(tmp_path / "run")
    assert not (tmp_path / "run" / "lock").exists()
    one.save(tmp_path / "learner")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "v.safetensors").unlink()
    again = StreamLearner.load(tmp_path / "learner")
    assert again.digest() == one.digest()
    assert again.predict(X).tobytes() == one.predict(X).tobytes()
    assert again.merge(one).examples_ == 18


def test_an_encoder_of_one_s_own_has_to_be_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, other = (nn.Linear(2, 4).eval() for _ in range(2))
    StreamLearner.from_encoder(net, dim=4, name="mine").partial_fit(np.eye(2), "ab").save(tmp_path)
    assert StreamLearner.load(tmp_path, net).predict(np.eye(2)).tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="pass it"):
        StreamLearner.load(tmp_path)
    with pytest.raises(ValueError, match="but this is 'mine"):
        StreamLearner.load(tmp_path, other)


def test_the_first_format_is_read_for_ever() -> None:
    one = StreamLearner.load(FIXTURE)
    right = the_fixture().partial_fit(np.ones((1, 4)), ["in the journal"], source="bob")
    assert same(one, right)
    assert one.digest() == "9f6aa76d5e3c6f45fccac9e0cb0d129c20ada381422700dcd55977100e0799b5"
    assert one.counts_ == {7: 1, "cat": 2, "in the journal": 1, b"\x00": 1, ("dog", None): 1}


def test_no_learner_is_overwritten_by_one_that_does_not_know_what_it_knew(tmp_path: Path) -> None:
    X, y = blobs(9)
    one, other = vectors().partial_fit(X, y), vectors()
    one.save(tmp_path)
    with pytest.raises(ValueError, match="holds another learner"):
        other.save(tmp_path)
    with pytest.raises(ValueError, match="holds another learner"):
        other.save(tmp_path, journal=True)
    first, second = StreamLearner.load(tmp_path), StreamLearner.load(tmp_path)
    first.partial_fit(X, y).save(tmp_path)
    first.partial_fit(X, y).save(tmp_path)
    for late in (one, second):
        with pytest.raises(ValueError, match="has learned since"):
            late.save(tmp_path)
    with_journal = StreamLearner.load(tmp_path, journal=True)
    with_journal.partial_fit(X, y)
    with_journal.close()
    with pytest.raises(ValueError, match="has learned since"):
        first.save(tmp_path)
    with_journal.partial_fit(X, y).save(tmp_path)
    assert StreamLearner.load(tmp_path).examples_ == 45


# The journal


def learned_in_pieces(folder: Path, belief: Any = "normal-gamma", each: int = 3) -> tuple[list[int], list[str]]:
    """Sizes of the journal after every acknowledged piece, and the digests then."""
    X, y = blobs(30)
    y = X[:, 0] if belief == "matrix-normal" else y
    one = vectors(belief)
    one.save(folder, journal=True)
    sizes, digests = [0], [one.digest()]
    for first in range(0, 30, each):
        one.partial_fit(X[first : first + each], y[first : first + each], source=[None, "anna"][first % 2])
        sizes.append((folder / "journal-1.log").stat().st_size)
        digests.append(one.digest())
    one.close()
    return sizes, digests


@pytest.mark.parametrize("belief", ["normal-gamma", "matrix-normal"])
def test_a_journal_cut_at_any_byte_keeps_what_was_acknowledged(tmp_path: Path, belief: str) -> None:
    sizes, digests = learned_in_pieces(tmp_path, belief)
    path, chance = tmp_path / "journal-1.log", random.Random(0)
    whole = path.read_bytes()
    for cut in [*sizes, *(chance.randrange(len(whole)) for _ in range(100))]:
        path.write_bytes(whole[:cut] + bytes(chance.choice([0, 0, 5, 100])))  # or room that was never filled
        right = max(number for number, size in enumerate(sizes) if size <= cut)
        assert StreamLearner.load(tmp_path).digest() == digests[right]
        if chance.random() < 0.2:  # and it goes on from there
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                one = StreamLearner.load(tmp_path, journal=True)
            assert bool(told) == (path.stat().st_size < cut) or cut in sizes or cut < sizes[1]
            X, y = blobs(3, seed=5)
            one.partial_fit(X, X[:, 0] if belief == "matrix-normal" else y)
            one.close()
            assert StreamLearner.load(tmp_path).digest() == one.digest() != digests[right]


LEARN_UNTIL_KILLED = """
import sys
import numpy as np
from sbmcl import StreamLearner
learner = StreamLearner.load(sys.argv[1], journal=True)
for number in range(10**6):
    learner.partial_fit(np.full((1, 4), number / 1e5), [number])
    print(number, flush=True)
"""


def test_a_killed_process_lost_nothing_and_doubled_nothing(tmp_path: Path) -> None:
    vectors().save(tmp_path, journal=True)
    command = [sys.executable, "-c", LEARN_UNTIL_KILLED, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout]
    process.wait()
    counts = StreamLearner.load(tmp_path, journal=True).counts_
    assert list(counts.values()) == [1] * len(counts)
    assert list(counts) in (acknowledged, [*acknowledged, len(acknowledged)])  # one may have been about to be


def test_only_one_process_keeps_the_journal(tmp_path: Path) -> None:
    one = vectors()
    one.save(tmp_path, journal=True)
    with pytest.raises(ValueError, match="another process"):
        StreamLearner.load(tmp_path, journal=True)
    with pytest.raises(ValueError, match="another process"):
        StreamLearner.load(tmp_path).save(tmp_path)
    with pytest.raises(ValueError, match="close"):
        one.save(tmp_path / "b", journal=True)
    one.partial_fit(np.eye(4), "abca")
    assert StreamLearner.load(tmp_path).digest() == one.digest()  # reading is free
    one.save(tmp_path / "copy")
    one.close()
    one.close()
    assert StreamLearner.load(tmp_path, journal=True).digest() == StreamLearner.load(tmp_path / "copy").digest()
    with pytest.raises(ValueError, match="holds no learner yet"):
        StreamLearner.load(tmp_path / "c", journal=True)


def test_what_was_forgotten_is_gone_from_the_folder(tmp_path: Path) -> None:
    one = vectors()
    one.save(tmp_path, journal=True)
    X = np.eye(4)
    one.partial_fit(X[:2], ["kept", "kept"], source="stays").partial_fit(X[2:], ["secret", "kept"], source="leaves")
    one.forget(source="leaves")
    there = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"stays" in there
    assert b"leaves" not in there
    assert b"secret" not in there
    right = vectors().partial_fit(X[:2], ["kept", "kept"], source="stays")
    assert StreamLearner.load(tmp_path).digest() == right.digest() == one.digest()


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = vectors()
    one.save(tmp_path, journal=True)
    one.partial_fit(np.eye(4), "abca")
    before, write = one.digest(), os.write

    def half(descriptor: int, data: Any) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(journal.os, "write", half)
    with pytest.raises(OSError, match="nothing was learned"):
        one.partial_fit(np.eye(4), "abcd")
    monkeypatch.undo()
    assert one.digest() == before == StreamLearner.load(tmp_path).digest()
    one.partial_fit(np.eye(4), "abcd")
    assert one.digest() == StreamLearner.load(tmp_path).digest() != before
    with pytest.raises(ValueError, match="cannot keep"):
        one.partial_fit(np.eye(4)[:1], [frozenset()])
    assert one.digest() == StreamLearner.load(tmp_path).digest()


@pytest.mark.parametrize("fails", range(12))
def test_a_save_that_stops_anywhere_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """Whatever call to the system is its last."""
    one = vectors()
    one.save(tmp_path, journal=True)
    one.partial_fit(np.eye(4), "abca", source="s")
    old, calls = one.digest(), 0
    right = {old, vectors().digest()}

    def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > fails:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        return call

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "open")):
        monkeypatch.setattr(owner, name, stopping(getattr(owner, name)))
    try:
        one.forget(source="s")
        stopped = False
    except KeyboardInterrupt:
        stopped = True
    monkeypatch.undo()
    one.close()
    assert stopped or calls == fails or fails > calls
    found = StreamLearner.load(tmp_path, journal=True)
    assert found.digest() in right
    found.partial_fit(np.eye(4), "abca")
    found.close()
    assert StreamLearner.load(tmp_path).digest() == found.digest()


# Files that are not to be trusted


def damaged(data: bytes, chance: random.Random) -> bytes:
    at, other = chance.randrange(len(data)), chance.randrange(len(data))
    some = chance.randbytes(chance.choice([1, 2, 8, 64]))
    return chance.choice(
        [
            data[:at],
            data[at:],
            data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
            data[:at] + some + data[at:],
            data[:at] + some + data[at + len(some) :],
            data[: min(at, other)] + data[max(at, other) :],
            data[:at] + data[other : other + 64] + data[at:],
            data[:at] + bytes(len(data) - at),
            data + some,
            some,
        ]
    )


def digest_or_refusal(folder: Path) -> str:
    try:
        return StreamLearner.load(folder).digest()
    except ValueError as error:
        return str(error)


def test_a_thousand_damaged_folders_are_refused_or_harmless(tmp_path: Path) -> None:
    """A cut tail of the journal is what a kill leaves; in everything else a changed byte is found."""
    _, digests = learned_in_pieces(tmp_path, each=15)
    names = ["learner.json", "state-1.safetensors", "journal-1.log"]
    whole, chance, refused = {name: (tmp_path / name).read_bytes() for name in names}, random.Random(0), 0
    for _ in range(1000):
        name = chance.choice(names)
        (tmp_path / name).write_bytes(damaged(whole[name], chance))
        found = digest_or_refusal(tmp_path)
        refused += str(tmp_path) in found
        assert str(tmp_path) in found or found in (digests if name == "journal-1.log" else digests[-1:])
        (tmp_path / name).write_bytes(whole[name])
    assert refused > 600
    assert StreamLearner.load(tmp_path).digest() == digests[-1]


def sealed(folder: Path, **changes: Any) -> None:
    """A header as somebody would write it who knows how."""
    about = json.loads((folder / "learner.json").read_text()) | changes
    about.pop("checksum")
    about["state"] = files.hashlib.sha256((folder / "state-1.safetensors").read_bytes()).hexdigest()
    (folder / "learner.json").write_text(json.dumps(about | {"checksum": files._checksum(about)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "sbmcl-learner/2"},
        {"format": ["x"]},
        {"belief": "os.system"},
        {"belief": "MatrixNormal"},
        {"grid": 13.5},
        {"grid": None},
        {"grid": -1},
        {"scale": "1"},
        {"scale": None},
        {"generation": "../../etc/passwd"},
        {"generation": -1},
        {"generation": 99},
        {"classes": ["a"]},
        {"classes": [["a"], "b", "c"]},
        {"classes": [{"python": "exec"}, "b", "c"]},
        {"classes": ["a", "a", "b"]},
        {"classes": {"tuple": []}},
        {"classes": None},
        {"ids": [0, 0, 1]},
        {"ids": [0, 1, 99]},
        {"ids": [0, 1, "2"]},
        {"sources": ["anna"]},
        {"sources": ["anna", 7, "nobody"]},
        {"encoder": {"identity": "none", "x_shape": [5]}},
        {"encoder": {"identity": "none", "x_shape": []}},
        {"encoder": {"identity": "resnet", "x_shape": None}},
        {"encoder": None},
        {"run": {"experiment": {"data": {"type": "subprocess.Popen"}}}},
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    taught().save(tmp_path)
    sealed(tmp_path, **changes)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        StreamLearner.load(tmp_path).partial_fit(np.zeros((1, 4)), ["a"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("classes", lambda t: -t),
        ("classes", lambda t: t * 0),
        ("classes", lambda t: t[:, :-1]),
        ("classes", lambda t: t.double()),
        ("classes", lambda t: torch.full_like(t, -(2**63))),
        ("ledger", lambda t: t * 2),
        ("ledger.place", lambda t: t - 1),
        ("ledger.place", lambda t: t + 100),
        ("ledger.place", lambda t: t * 0),
        ("ledger.place", lambda t: t.double()),
        ("ledger.place", lambda t: t.flatten()),
        ("prior.shift", lambda t: t / 0),
        ("prior.shift", lambda t: t[..., :2]),
        ("prior.count", lambda t: t.expand(3, 1, 1).contiguous()),
        ("prior.shape", lambda t: t.long()),
    ],
)
def test_states_that_lie_are_refused(tmp_path: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    taught().save(tmp_path)
    path = tmp_path / "state-1.safetensors"
    tensors = load_file(path)
    save_file(tensors | {name: change(tensors[name]).contiguous()}, path)
    sealed(tmp_path)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        StreamLearner.load(tmp_path)


class Malice:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os._exit, (3,))


def test_nothing_is_ever_executed_and_no_size_is_believed(tmp_path: Path) -> None:
    taught().save(tmp_path)
    state = tmp_path / "state-1.safetensors"
    huge = json.dumps({"classes": {"dtype": "I64", "shape": [2**40, 2**20], "data_offsets": [0, 2**63]}}).encode()
    for data in (pickle.dumps(Malice()), len(huge).to_bytes(8, "little") + huge, b"\xff" * 64, b""):
        state.write_bytes(data)
        sealed(tmp_path)
        with pytest.raises(ValueError, match="no whole learner"):
            StreamLearner.load(tmp_path)
    for text in ("[" * 10**5, "{}", "null", "7", '"learner"', "{" + '"format":' * 9, "9" * 10**5):
        (tmp_path / "learner.json").write_text(text)
        with pytest.raises(ValueError, match="no whole learner"):
            StreamLearner.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no run folder"):
        StreamLearner.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("about", "body"),
    [
        ({"n": 1, "labels": ["a"], "source": None}, np.full(4, np.nan).tobytes()),
        ({"n": 1, "labels": ["a"], "source": None}, np.full(4, 0.1).tobytes()),  # not on the grid
        ({"n": 1, "labels": ["a"], "source": None}, np.full(4, 1e9).tobytes()),
        ({"n": 1, "labels": ["a"], "source": None}, bytes(31)),
        ({"n": 2, "labels": ["a"], "source": None}, bytes(64)),
        ({"n": 1, "labels": None, "source": None}, bytes(32)),
        ({"n": 1, "labels": ["a"], "source": ["x"]}, bytes(32)),
        ({"n": 1, "labels": [{"float": "nan"}], "source": None}, bytes(32)),
        ({"n": True, "labels": ["a"]}, bytes(32)),
        ({"n": -1, "labels": [], "source": None}, b""),
    ],
)
def test_journals_that_lie_are_refused(tmp_path: Path, about: dict[str, Any], body: bytes) -> None:
    one = vectors()
    one.save(tmp_path, journal=True)
    one.close()
    with (tmp_path / "journal-1.log").open("ab") as file:
        file.write(journal.packed(about, body))
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        StreamLearner.load(tmp_path)


def test_a_journal_of_another_learner_is_refused(tmp_path: Path) -> None:
    for name, one in (("a", vectors()), ("b", vectors("isotropic"))):
        one.save(tmp_path / name, journal=True)
        one.close()
    shutil.copy(tmp_path / "a" / "journal-1.log", tmp_path / "b" / "journal-1.log")
    with pytest.raises(ValueError, match="another learner"):
        StreamLearner.load(tmp_path / "b")
