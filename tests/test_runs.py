"""A run folder can be repeated from itself, and refuses what does not fit it with the reason."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sbmcl import __version__
from sbmcl.config import PN, ALPaCA, GeMCL, Sine, Training
from sbmcl.data.sine import SineSource
from sbmcl.experiment import Experiment
from sbmcl.runs import RunFolder, environment, hardware

CPU = torch.device("cpu")
EXPERIMENT = Experiment(
    "tiny", "sine/regression", "sbmcl", Sine(), ALPaCA(width=4, hidden=4), Training(steps=3), seed=5
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "made" / "run", EXPERIMENT, CPU)


def built(width: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return ALPaCA(width=width, hidden=4).build(SineSource())


def test_a_run_holds_all_that_repeats_it(run: RunFolder) -> None:
    assert RunFolder.open(run.path).experiment() == EXPERIMENT
    kept = run.environment()
    assert {"sbmcl", "commit", "python", "torch", "hardware", "command"} <= set(kept)
    assert kept["sbmcl"] == __version__
    assert kept["torch"] == torch.__version__
    assert kept["hardware"] == hardware(CPU)
    assert environment(CPU)["command"]


def test_nothing_is_overwritten(run: RunFolder) -> None:
    before = (run.path / "config.json").read_bytes()
    with pytest.raises(FileExistsError, match=r"already holds a run.*--resume"):
        RunFolder.create(run.path, EXPERIMENT, CPU)
    assert (run.path / "config.json").read_bytes() == before


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is no run folder.*sbmcl train"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        (lambda plain: plain["training"].update(momentum=0.9), "no setting momentum; this file is of another version"),
        (lambda plain: plain["method"].update(type="Perceptron"), "no method config is called 'Perceptron'; known are"),
        (lambda plain: plain["data"].update(type="Moons"), "no data config is called 'Moons'"),
        (lambda plain: plain["training"].update(steps="many"), "Training.steps is 'many'"),
        (lambda plain: plain.pop("method"), "cannot be read: 'method'"),
        (lambda plain: plain.pop("label"), "label"),
    ],
)
def test_a_config_of_another_version_names_what_is_foreign(run: RunFolder, text, message: str) -> None:
    path = run.path / "config.json"
    if callable(text):
        plain = json.loads(path.read_text())
        text(plain)
        text = json.dumps(plain)
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        run.experiment()


def test_weights_survive_saving(run: RunFolder) -> None:
    method, other = built(), built()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    run.save_weights("last", method, 7)
    assert run.load_weights(other) == 7
    assert all(
        torch.equal(a, b) for a, b in zip(method.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_the_best_are_loaded_where_there_are_any(run: RunFolder) -> None:
    with pytest.raises(FileNotFoundError, match=r"last.safetensors is missing.*--resume"):
        run.load_weights(built())
    run.save_weights("last", built(), 9)
    assert run.load_weights(built()) == 9
    run.save_weights("best", built(), 4)
    assert run.load_weights(built()) == 4
    assert run.load_weights(built(), "last") == 9


@pytest.mark.parametrize("config", [GeMCL(), PN()])
def test_weights_of_another_method_are_refused(run: RunFolder, config: GeMCL | PN) -> None:
    from methods import pictures

    run.save_weights("last", config.build(pictures(size=32)), 1)
    with pytest.raises(ValueError, match=rf"holds a {type(config).__name__}, but .*config.json says ALPaCA"):
        run.load_weights(built())


def test_weights_of_another_shape_are_refused_and_none_are_taken(run: RunFolder) -> None:
    run.save_weights("last", built(width=5), 1)
    method = built()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    with pytest.raises(ValueError, match=rf"written by sbmcl {__version__}.*of another shape"):
        run.load_weights(method)
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())


def test_weights_with_a_name_too_many_or_too_few_are_refused(run: RunFolder) -> None:
    """Loading what fits and leaving the rest untrained would go unnoticed."""
    run.save_weights("last", built(), 1)
    path = run.path / "last.safetensors"
    weights, header = load_file(path), {"format": "sbmcl-weights/1", "version": "0", "method": "ALPaCA", "step": "1"}
    save_file({f"module.{name}": value for name, value in weights.items()}, path, header)
    with pytest.raises(ValueError, match="missing, foreign or of another shape"):
        run.load_weights(built())
    weights.pop("prior_mean")
    save_file(weights, path, header)
    with pytest.raises(ValueError, match="prior_mean"):
        run.load_weights(built())


def test_weights_of_another_format_are_refused(run: RunFolder) -> None:
    path = run.path / "last.safetensors"
    save_file({"a": torch.zeros(1)}, path, {"format": "sbmcl-weights/99"})
    with pytest.raises(ValueError, match=r"format 'sbmcl-weights/99'; this version of sbmcl reads 'sbmcl-weights/1'"):
        run.load_weights(built())
    path.write_bytes(b"junk")
    with pytest.raises(ValueError, match="damaged or no safetensors"):
        run.load_weights(built())


def test_a_checkpoint_cannot_execute_code(run: RunFolder) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return (print, ("executed",))

    torch.save({"step": Evil()}, run.path / "checkpoint.pt")
    with pytest.raises(Exception, match=r"[Ww]eights.only|Unsupported"):
        run.load_checkpoint()


def test_a_run_knows_whether_it_is_finished(run: RunFolder) -> None:
    assert run.checkpoint_step() == 0
    assert not run.is_finished(3)
    run.save_checkpoint({"step": 3})
    assert run.is_finished(3)
    assert not run.is_finished(4)
