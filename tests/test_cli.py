"""The command line as its users meet it: real invocations, their output and their exit codes."""

import json
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sbmcl.cli import main
from sbmcl.cli.app import VERBS
from sbmcl.cli.common import Exit, seconds_in
from sbmcl.config import Online, Sine, Training
from sbmcl.experiment import Experiment
from sbmcl.recipes import ALL, page

SMALL = [
    "--method.width=8",
    "--method.hidden=8",
    "--training.steps=4",
    "--training.episodes=1",
    "--training.validation-episodes=1",
]
TRAIN = ["train", "sine-alpaca-quick", *SMALL]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sbmcl(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in a folder of its own; returns its exit code, what it printed and what it said in passing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SBMCL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("SBMCL_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, " ".join(printed.out.split()), " ".join(printed.err.split())

    return run


def in_a_process(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "import sys; from sbmcl.cli import main; sys.exit(main())", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def settings(run: str | Path) -> dict[str, object]:
    return json.loads((Path(run) / "config.json").read_text())


def weights(run: str | Path) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in load_file(Path(run) / "last.safetensors").items()}


def rows(path: str | Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_help_names_every_verb_and_exit_code(sbmcl: Command) -> None:
    code, text, _ = sbmcl("--help")
    assert code == 0
    assert all(verb in text for verb in VERBS)
    assert all(str(int(code)) in text for code in Exit)
    assert sbmcl() == sbmcl("--help") == sbmcl("help")


def test_every_verb_has_a_line_in_the_help_and_a_help_of_its_own(sbmcl: Command) -> None:
    for name, verb in VERBS.items():
        for words in [(name, inner) for inner in verb] if isinstance(verb, dict) else [(name,)]:
            code, text, _ = sbmcl(*words, "--help")
            assert code == 0
            assert "usage" in text.lower()
            assert len(text) > 150


def test_help_and_listings_import_no_torch() -> None:
    asks = ["--help", "recipes", "recipes sine-alpaca", "train --help", "train sine-alpaca --help", "completion zsh"]
    script = "import sys\nfrom sbmcl.cli import main\n" + "\n".join(f"assert main({ask.split()}) == 0" for ask in asks)
    subprocess.run(
        [sys.executable, "-c", f"{script}\nassert 'torch' not in sys.modules"], check=True, capture_output=True
    )


def test_version(sbmcl: Command) -> None:
    import sbmcl as package

    assert sbmcl("--version") == (0, f"sbmcl {package.__version__}", "")


def test_recipes_are_listed_filtered_and_shown(sbmcl: Command) -> None:
    assert all(name in sbmcl("recipes")[1] for name in ALL)
    quick = sbmcl("recipes", "sine", "QUICK")[1]
    assert "sine-alpaca-quick" in quick
    assert "omniglot" not in quick
    code, text, _ = sbmcl("recipes", "sine-alpaca")
    assert code == 0
    assert "--training.steps 50000" in text
    assert "--method.width 512" in text
    assert sbmcl("recipes", "no-such-thing")[0] == Exit.USAGE


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_is_one_name_plain_data_and_a_page(name: str) -> None:
    experiment = ALL[name]()
    assert experiment.recipe == name
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment
    assert page(ALL[name]).what.endswith(".")


def test_a_run_is_made_and_evaluated(sbmcl: Command) -> None:
    code, _, said = sbmcl(*TRAIN, "--seed", "3")
    assert code == 0
    run = "runs/sine-alpaca-quick-3"
    assert f"sbmcl evaluate {run}" in said
    assert settings(run)["seed"] == 3
    for flags in ([], ["--map"]):
        code, table, said = sbmcl("evaluate", run, "--tasks", "2", "3", "--shots", "2", "--episodes", "3", *flags)
        assert code == 0
        assert "mse" in table
    found = rows(f"{run}/results.jsonl")
    asked = {(row["tasks"], row["shots"]) for row in found}
    assert asked == {(2, 10), (3, 10), (10, 2)}
    assert {row["method"] for row in found} == {"sbmcl", "sbmcl-map"}
    assert {row["episodes"] for row in found} == {3}


def test_evaluation_goes_where_it_is_told_and_shows_the_paper(sbmcl: Command) -> None:
    sbmcl(*TRAIN, "--run", "one")
    code, table, _ = sbmcl(
        "evaluate", "one", "--episodes", "2", "--results", "all.jsonl", "--which", "last", "--forgetting"
    )
    assert code == 0
    assert not Path("one/results.jsonl").exists()
    assert {"mse", "nll", "forgetting"} <= {row["metric"] for row in rows("all.jsonl")}
    assert "0.0011 ± 0.0002" in table


def test_a_run_is_repeated_from_its_own_folder(sbmcl: Command) -> None:
    sbmcl(*TRAIN, "--run", "one")
    assert sbmcl("train", "one")[0] == Exit.FAILED  # never overwritten
    assert sbmcl("train", "one", "--run", "two")[0] == 0
    assert settings("one") == settings("two")
    assert weights("one") == weights("two")
    sbmcl(*TRAIN, "--run", "three", "--seed", "1")
    assert weights("three") != weights("one")


def test_resuming_keeps_the_settings_of_the_run(sbmcl: Command) -> None:
    sbmcl(*TRAIN, "--run", "one")
    code, _, said = sbmcl("train", "sine-alpaca-quick", "--run", "one", "--resume")
    assert code == 0
    assert "already trained" in said
    code, _, said = sbmcl("train", "one", "--resume", "--training.lr", "0.5")
    assert code == Exit.USAGE
    assert "training.lr is 0.002, not 0.5" in said


def test_an_interrupted_run_says_how_to_go_on_and_ends_the_same(sbmcl: Command) -> None:
    more = [*TRAIN, "--training.steps", "60", "--training.log-every", "1", "--training.checkpoint-every", "20"]
    process = in_a_process(*more, "--run", "one")
    log = Path("one/log.jsonl")
    while process.poll() is None and (not log.exists() or log.read_text().count("\n") < 5):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED, said
    assert "sbmcl train one --resume" in " ".join(said.split())
    assert "Traceback" not in said
    assert sbmcl("train", "one", "--resume")[0] == 0
    assert sbmcl(*more, "--run", "two")[0] == 0
    assert weights("one") == weights("two")


def test_divergence_has_a_code_of_its_own(sbmcl: Command) -> None:
    code, _, said = sbmcl(*TRAIN, "--training.lr", "1e30", "--training.schedule", "constant")
    assert code == Exit.DIVERGED
    assert "--training.lr" in said


def test_a_budget_sets_the_steps_and_stands_in_the_rows(sbmcl: Command) -> None:
    code, _, said = sbmcl(*TRAIN, "--run", "one", "--budget", "2s")
    assert code == 0
    assert "fit into 2s" in said
    assert settings("one")["budget"] == "2s"
    steps = settings("one")["training"]["steps"]  # pyright: ignore
    assert steps > 4
    assert sbmcl("train", "one", "--run", "two")[0] == 0  # repeats the steps, does not measure again
    assert settings("two") == settings("one")
    sbmcl("evaluate", "one", "--tasks", "2", "--episodes", "2")
    assert {row["budget"] for row in rows("one/results.jsonl")} == {"2s"}


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1h30m", 5400), (" 2H ", 7200)])
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert seconds_in(text) == seconds


def test_what_is_not_meta_trained_can_still_be_evaluated(sbmcl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    method, training = Online(width=4), Training(steps=0)
    experiment = Experiment("sine-online-tiny", "sine/regression", "online", Sine(), method, training)
    monkeypatch.setitem(ALL, "sine-online-tiny", lambda: experiment)
    code, _, said = sbmcl("train", "sine-online-tiny", "--run", "one", "--training.steps", "9")
    assert code == 0
    assert "nothing to meta-train" in said
    assert sbmcl("evaluate", "one", "--tasks", "2", "--episodes", "2")[0] == 0
    assert {row["steps"] for row in rows("one/results.jsonl")} == {0}


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("trian", Exit.USAGE, "did you mean train?"),
        ("data prpare", Exit.USAGE, "did you mean prepare?"),
        ("train sine-alpac", Exit.USAGE, "did you mean sine-alpaca"),
        ("train sine-alpaca-quick --trainig.lr 1", Exit.USAGE, "--training.lr"),
        ("train sine-alpaca-quick --training.lr -1", Exit.USAGE, "training.lr must be positive"),
        ("train sine-alpaca-quick --training.steps many", Exit.USAGE, "many"),
        ("train --resume sine-alpaca-quick", Exit.USAGE, "the recipe comes first"),
        ("train sine-alpaca-quick --budget soon", Exit.USAGE, "90s, 15m or 1h30m"),
        ("train sine-alpaca-quick --device abacus", Exit.USAGE, "auto, cpu, cuda"),
        ("train sine-alpaca-quick --threads 0", Exit.USAGE, "counts from 1"),
        ("train .", Exit.USAGE, "'sbmcl train RECIPE' makes one"),
        ("train omniglot-gemcl", Exit.FAILED, "sbmcl data prepare omniglot"),
        ("evaluate", Exit.USAGE, "sbmcl evaluate RUN_FOLDER"),
        ("evaluate nowhere", Exit.FAILED, "'sbmcl train RECIPE' makes one"),
        ("evaluate nowhere --tasks ten", Exit.USAGE, "ten"),
        ("show", Exit.USAGE, "sbmcl show RUN_FOLDER"),
        ("show nowhere", Exit.FAILED, "'sbmcl train RECIPE' makes one"),
        ("show nowhere --number -1", Exit.USAGE, "counted from 0"),
        ("data prepare omniglot --from nowhere", Exit.FAILED, "nowhere/images_background.zip is missing"),
        ("report --results nowhere.jsonl", Exit.FAILED, "nowhere.jsonl is missing"),
        ("completion tcsh", Exit.USAGE, "bash"),
    ],
)
def test_mistakes_are_answered_with_their_fix(sbmcl: Command, command: str, code: Exit, words: str) -> None:
    returned, _, said = sbmcl(*command.split())
    assert words in said
    assert returned == code
    assert not Path("runs").exists(), "a mistake leaves nothing behind"


def test_evaluation_errors_name_what_is_wrong(sbmcl: Command) -> None:
    sbmcl(*TRAIN, "--run", "one")
    for flags, words in (
        ("--on nothing", "known are"),
        ("--on omniglot", "cannot be asked the way sine is"),
        ("--samples", "draws no samples"),
    ):
        code, _, said = sbmcl("evaluate", "one", *flags.split())
        assert code == Exit.FAILED
        assert words in said


def test_what_runs_do_is_shown_side_by_side(sbmcl: Command) -> None:
    for seed in "01":
        sbmcl(*TRAIN, "--seed", seed, "--run", seed)
    code, _, said = sbmcl("show", "0", "1", "--tasks", "2", "--shots", "3", "--out", "results")
    assert code == 0, said
    stream, functions = sorted(Path("results").glob("*.png"))
    assert stream.name == "Sine-regression-a-training-stream-of-2-tasks-of-3-shots.png"
    assert functions.stem.endswith("seed-0-and-sine-alpaca-quick-seed-1-after-2-tasks-of-3-shots")
    assert functions.name in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "sbmcl-weights/0"}, "reads 'sbmcl-weights/1'"),
        ({"method": "GeMCL"}, "holds a GeMCL"),
    ],
)
def test_weights_of_another_version_or_method_are_refused(sbmcl: Command, change: dict[str, str], words: str) -> None:
    sbmcl(*TRAIN, "--run", "one")
    for path in Path("one").glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            header = file.metadata()
        save_file(load_file(path), path, header | change)
    code, _, said = sbmcl("evaluate", "one")
    assert code == Exit.FAILED
    assert words in said


def test_settings_of_another_version_are_refused(sbmcl: Command) -> None:
    sbmcl(*TRAIN, "--run", "one")
    plain = settings("one")
    for broken, words in (
        (plain | {"method": {"type": "ALPaCA", "depth_of_thought": 3}}, "has no setting depth_of_thought"),
        (plain | {"method": {"type": "ALPaCA", "width": 16, "hidden": 8}}, "of another shape"),
    ):
        Path("one/config.json").write_text(json.dumps(broken))
        code, _, said = sbmcl("evaluate", "one")
        assert code == Exit.FAILED
        assert words in said


def test_a_traceback_is_there_for_who_asks(sbmcl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBMCL_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        sbmcl("evaluate", "nowhere")


def test_a_reader_that_stops_early_is_met_with_silence() -> None:
    process = in_a_process("recipes")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait()


def test_omniglot_is_prepared_from_a_folder_and_trained_on(sbmcl: Command, tmp_path: Path) -> None:
    for split, characters in (("background", 12), ("evaluation", 4)):
        with zipfile.ZipFile(tmp_path / f"images_{split}.zip", "w") as file:
            for number in range(characters * 4):
                picture = BytesIO()
                Image.new("1", (105, 105), number % 2).save(picture, "png")
                file.writestr(f"images_{split}/Runes/character{number // 4:02}/{number}.png", picture.getvalue())
    code, _, said = sbmcl("data", "prepare", "omniglot", "--from", str(tmp_path))
    assert code == 0, said
    assert "12 classes, 48" in said
    shape = "--training.shape.tasks 2 --training.shape.shots 2 --training.shape.queries 2 --data.validation 0.2"
    steps = "--training.steps 1 --training.episodes 1 --training.validation-episodes 1 --method.width 8"
    code, _, said = sbmcl("train", "omniglot-gemcl-quick", *shape.split(), *steps.split())
    assert code == 0, said
    code, _, said = sbmcl("evaluate", "runs/omniglot-gemcl-quick-0", "--tasks", "50")
    assert code == Exit.FAILED
    assert "fewer than 50 tasks" in said


def test_bash_completes_verbs_recipes_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out

    def completed(*words: str) -> list[str]:
        line = f"COMP_WORDS=(sbmcl {' '.join(words)}); COMP_CWORD={len(words)}"
        command = ["bash", "-c", f'{script}\n{line}; _sbmcl; echo "${{COMPREPLY[@]}}"']
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert completed("tr") == ["train"]
    assert completed("data", "pr") == ["prepare"]
    assert "sine-alpaca-quick" in completed("train", "sine-")
    assert completed("train", "sine-alpaca", "--bud") == ["--budget"]
    assert "--training.lr" in completed("train", "sine-alpaca", "--training.l")
    assert completed("evaluate", "a-run", "--epi") == ["--episodes"]
    assert completed("data", "prepare", "--fr") == ["--from"]
