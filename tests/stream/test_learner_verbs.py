"""`sbmcl learn`, `predict`, `merge`, `forget` and `inspect`, as their users meet them."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_stream_learner import a_run

from sbmcl import StreamLearner
from sbmcl.cli import main
from sbmcl.cli.common import Exit
from sbmcl.config import GeMCL, Pictures
from sbmcl.data.store import Store

Command = Callable[..., tuple[int, list[str], str]]
RNG = np.random.default_rng(0)
Y = np.array(["cat", "dog", "eel"] * 6)
X = np.array([[0.0, 0, 0], [5, 5, 5], [-5, 5, 0]])[np.arange(18) % 3] + RNG.normal(size=(18, 3))
X = X.astype(np.float32).astype(float)


@pytest.fixture
def sbmcl(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in a folder of its own: its exit code, the lines it printed, and what it said in passing."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: str = "") -> tuple[int, list[str], str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), " ".join(printed.err.split())

    return run


def table(path: str, rows: slice, *, labels: bool = True) -> str:
    lines = ["label,p,q,r"] if labels else ["p,q,r"]
    for x, y in zip(X[rows].tolist(), Y[rows], strict=True):
        lines.append(",".join([*([y] if labels else []), *map(repr, x)]))
    Path(path).write_text("\n".join(lines))
    return path


def line(row: int, **more: Any) -> str:
    return json.dumps({"x": X[row].tolist(), "y": str(Y[row])} | more) + "\n"


def right(rows: slice = slice(18)) -> StreamLearner:
    return StreamLearner.from_encoder(None, "isotropic", dim=3).partial_fit(X[rows], Y[rows])


def test_every_kind_of_file_is_learned_alike(sbmcl: Command) -> None:
    table("a.csv", slice(5))
    np.savez("b.npz", x=X[5:9].astype(np.float32), y=Y[5:9])
    Path("c.jsonl").write_text("".join(map(line, range(9, 18))))
    assert sbmcl("learn", "L", "a.csv", "--belief", "isotropic")[0] == 0
    assert sbmcl("learn", "L", "b.npz", "c.jsonl")[0] == 0
    assert StreamLearner.load("L").digest() == right().digest()


def test_predictions_are_a_line_an_example_in_order(sbmcl: Command) -> None:
    sbmcl("learn", "L", table("a.csv", slice(18)), "--belief", "isotropic")
    probability = right().predict_proba(X)
    np.savez("b.npz", x=X.astype(np.float32))
    Path("c.jsonl").write_text("".join(map(line, range(18))))
    for data in (table("q.csv", slice(18), labels=False), "b.npz", "c.jsonl"):
        code, lines, _ = sbmcl("predict", "L", data)
        found = [json.loads(text) for text in lines]
        assert code == 0
        assert [each["label"] for each in found] == right().predict(X).tolist()
        np.testing.assert_allclose([each["confidence"] for each in found], probability.max(1))
        np.testing.assert_allclose([each["novelty"] for each in found], right().novelty(X))
    unsure = [json.loads(text)["label"] for text in sbmcl("predict", "L", "q.csv", "--confidence", "1.1")[1]]
    assert unsure == [None] * 18
    given = [json.loads(text) for text in sbmcl("predict", "L", "a.csv", "--label", "label")[1]]
    assert sum(each["given"] == each["label"] for each in given) == round(18 * right().score(X, Y))


def test_a_pipe_is_answered_line_by_line(sbmcl: Command) -> None:
    lines = line(0, id="q", source=7) + "no json\n\n" + '{"x": ["a"]}\n' + line(1) + '{"x": [1, 2, 3], "y": 5}\n'
    code, out, err = sbmcl("learn", "L", "-", "--belief", "isotropic", "--source", "me", stdin=lines)
    assert code == 0
    assert [json.loads(text) for text in out] == [{"learned": 1, "id": "q"}, {"learned": 2}, {"learned": 3}]
    assert "line 2 is no example" in err
    assert "2 records were skipped" in err
    one = StreamLearner.load("L")
    assert one.sources_ == {7: 1, "me": 2}
    assert one.counts_ == {5: 1, "cat": 1, "dog": 1}
    code, out, _ = sbmcl("predict", "L", "-", stdin='{"x": [1, 2, 3], "id": [1]}\n{"x": [5, 5, 5]}\n')
    assert [json.loads(text)["label"] for text in out] == [5, "dog"]
    assert json.loads(out[0])["id"] == [1]
    assert sbmcl("learn", "L", "-", "--strict", stdin="no json\n")[0] == Exit.FAILED


def test_two_machines_merge_and_one_person_leaves(sbmcl: Command) -> None:
    sbmcl("learn", "A", table("a.csv", slice(9)), "--belief", "isotropic", "--source", "anna")
    sbmcl("learn", "B", table("b.csv", slice(9, 18)), "--belief", "isotropic", "--source", "7")
    assert sbmcl("merge", "A", "B", "-o", "C")[0] == 0
    assert StreamLearner.load("C").counts_ == right().counts_
    assert "is a learner already" in sbmcl("merge", "A", "B", "--out", "C")[2]
    assert sbmcl("merge", "A", "--out", "D")[0] == Exit.USAGE
    code, out, _ = sbmcl("forget", "C", "--source", "7")
    assert code == 0
    assert "9 examples forgotten" in out[0]
    assert StreamLearner.load("C").digest() == StreamLearner.load("A").digest()
    assert sbmcl("forget", "C", "--source", "7")[0] == Exit.FAILED
    sbmcl("learn", "A", "-", stdin=line(3, source=3))
    assert sbmcl("forget", "A", "--source", "3")[0] == 0
    assert StreamLearner.load("A").digest() == StreamLearner.load("C").digest()


def test_inspect_tells_all(sbmcl: Command) -> None:
    sbmcl("learn", "L", table("a.csv", slice(18)), "--belief", "normal-gamma", "--source", "anna", "--fast")
    one = StreamLearner.load("L")
    text = " ".join(sbmcl("inspect", "L")[1])
    assert all(word in text for word in ("cat", "dog", "anna", one.digest(), "3 classes"))
    (said,) = sbmcl("inspect", "L", "--json")[1]
    found = json.loads(said)
    assert found["digest"] == one.digest()
    assert found["examples"] == 18
    assert found["exact"] is False
    assert found["sources"] == [{"source": "anna", "examples": 18}]
    assert found["classes"][0] == {"label": "cat", "id": 0, "examples": 6}


def test_a_regression_learns_from_tables_and_lines(sbmcl: Command) -> None:
    Path("r.csv").write_text("p,q,t\n" + "".join(f"{x},{y},{x + 2 * y}\n" for x, y in X[:, :2].tolist()))
    assert sbmcl("learn", "R", "r.csv", "--belief", "matrix-normal", "--targets", "t")[0] == 0
    assert sbmcl("learn", "R", "-", stdin='{"x": [1, 0], "y": 1}\n{"x": [0, 1], "y": [2]}\n')[0] == 0
    (found,) = (json.loads(text) for text in sbmcl("predict", "R", "-", stdin='{"x": [3, 1]}\n')[1])
    assert abs(found["mean"] - 5) < 0.1
    assert found["aleatoric"] == pytest.approx(0.01)
    code, _, err = sbmcl("learn", "R", "r.csv")
    assert code == Exit.FAILED
    assert "--targets" in err


def test_files_are_learned_whole_or_not_at_all(sbmcl: Command) -> None:
    sbmcl("learn", "L", table("a.csv", slice(9)), "--belief", "isotropic")
    before = StreamLearner.load("L").digest()
    Path("bad.csv").write_text("label,p,q,r\ncat,1,2,3\ncat,1e30,2,3\n")
    assert "does not fit the grid" in sbmcl("learn", "L", "a.csv", "bad.csv")[2]
    Path("other.csv").write_text("label,p,q\ncat,1,2\n")
    assert "shape" in sbmcl("learn", "L", "a.csv", "other.csv")[2]
    assert "no folder of pictures" in sbmcl("learn", "L", "a.csv", "what.txt")[2]
    assert StreamLearner.load("L").digest() == before
    assert sbmcl("learn", "N", "bad.csv", "--belief", "isotropic")[0] == Exit.FAILED
    assert not Path("N/learner.json").exists()


def test_what_was_not_understood_says_how_it_is_meant(sbmcl: Command) -> None:
    table("a.csv", slice(9))
    assert "--run or --belief" in sbmcl("learn", "L", "a.csv")[2]
    sbmcl("learn", "L", "a.csv", "--belief", "isotropic")
    for arguments, said in (
        (("learn", "L", "a.csv", "--belief", "isotropic"), "is a learner already"),
        (("learn", "L"), "name files or folders"),
        (("learn", "L", "-", "a.csv"), "alone"),
    ):
        code, _, err = sbmcl(*arguments)
        assert code == Exit.USAGE
        assert said in err
    assert sbmcl("predict", "nothing", "a.csv")[0] == Exit.FAILED


def test_pictures_in_folders_on_a_trained_run(sbmcl: Command, tmp_path: Path) -> None:
    pictures = RNG.integers(0, 256, (12, 5, 1, 16, 16), dtype=np.uint8)
    Store.of("p", ((f"k{i}", part) for i, part in enumerate(pictures))).save(tmp_path / "p.safetensors")
    a_run(tmp_path / "run", Pictures(store=str(tmp_path / "p.safetensors")), GeMCL(width=4))
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = RNG.integers(0, 256, (20, 20), dtype=np.uint8) // (3 if name == "cat" else 1)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    assert sbmcl("learn", "L", "photos", "--run", "run")[0] == 0
    assert StreamLearner.load("L").counts_ == {"cat": 3, "dog": 3}
    found = [json.loads(text) for text in sbmcl("predict", "L", "photos")[1]]
    assert [each["given"] for each in found] == ["cat"] * 3 + ["dog"] * 3
