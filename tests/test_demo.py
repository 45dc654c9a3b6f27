"""The demonstration, in small: what it measures is right, and its page stands alone."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

from sbmcl import demo
from sbmcl.data.episodes import EpisodeShape
from sbmcl.data.glyphs import GlyphSource
from sbmcl.data.sine import SineSource
from sbmcl.demo import characters, diary, terminal
from sbmcl.episode import Episode
from sbmcl.methods.conjugate import PN, ALPaCA
from sbmcl.nets.mlp import MLP
from sbmcl.results import read

SHAPE = EpisodeShape(tasks=3, shots=4, queries=2)


@pytest.fixture
def method() -> ALPaCA:
    torch.manual_seed(0)
    return ALPaCA(MLP(50, 16, hidden=16, final="relu"), 16, 50).eval()


@pytest.fixture
def episode() -> Episode:
    return SineSource().draw(SHAPE, 1, diary.held_out())


def test_errors_are_those_of_learning_anew_from_each_beginning_of_the_stream(method: ALPaCA, episode: Episode) -> None:
    errors = diary.errors_by_task(method, episode)
    assert [len(row) for row in errors] == [3] * 4
    for learned, row in enumerate(errors):
        with torch.no_grad():
            belief = method.learn(method.init(1), episode.stream[: 4 * learned])
            score = method.score(belief, episode.query)["mse"].view(3, 2).mean(1)
        assert row == pytest.approx(score.tolist(), rel=1e-4)


def test_a_query_is_followed_from_before_its_task_to_the_end(method: ALPaCA, episode: Episode) -> None:
    watched = diary.sharpening(method, episode, task=1)
    assert watched.truth == episode.query.targets[0, 2].tolist()
    seen = [4, 4 + 1, 4 + 2, 4 + 4, 12]  # examples of the stream at the moments that four shots allow
    assert len(watched.answers) == len(seen)
    for answer, length in zip(watched.answers, seen, strict=True):
        with torch.no_grad():
            predictive = method.predict(method.learn(method.init(1), episode.stream[:length]), episode.query.x[:, 2:3])
        assert answer.mean == pytest.approx(predictive.mean.flatten().tolist(), abs=1e-4)
        assert answer.error == pytest.approx(
            (predictive.mean - episode.query.targets[:, 2:3]).square().mean().item(), rel=1e-3
        )


def test_promises_hold_and_would_be_seen_to_fail(
    method: ALPaCA, episode: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = diary.promises(method, episode, forgotten=1)
    assert len(kept) == 4
    assert max(kept.values()) < 1e-9
    assert method.dtype == torch.float32, "the method itself stays as it is"
    learn = ALPaCA.learn

    def forgetful(self: ALPaCA, state: object, examples: object) -> object:
        return learn(self, self.init(1), examples)  # pyright: ignore

    monkeypatch.setattr(ALPaCA, "learn", forgetful)
    assert diary.promises(method, episode, forgotten=1)["one example at a time, or all at once"] > 1e-3


class Copier(nn.Module):
    """An encoder whose code of a picture is the picture, flattened."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def test_characters_are_judged_among_those_learned_so_far() -> None:
    """By nearest means, found one by one; classes have variances of their own, but here all are alike."""
    torch.manual_seed(0)
    method = PN(Copier(), 1024).eval()
    episode = GlyphSource().draw(EpisodeShape(tasks=4, shots=3, queries=5), 1, diary.held_out())
    seen = characters.watch(method, episode)
    x, y = episode.stream.x.flatten(2)[0], episode.stream.targets[0]
    means = torch.stack([x[y == c].mean(0) for c in range(4)])
    far = torch.cdist(episode.query.x.flatten(2)[0], means)
    for learned, shares in enumerate(seen.right, 1):
        right = far[: 5 * learned, :learned].argmin(1) == episode.query.targets[0, : 5 * learned]
        assert shares == pytest.approx(right.view(learned, 5).float().mean(1).tolist())
    assert seen.taken_for == far.argmin(1).view(4, 5).tolist()
    away = [far[:, :learned].square().div(-4 / 3).logsumexp(1).neg() for learned in (1, 2, 3)]  # 3 shots, variance 1/2
    pairs = [(a[5 * n :, None] > a[None, : 5 * n]).float().mean().item() for n, a in enumerate(away, 1)]
    assert seen.novel == pytest.approx(pairs)
    assert seen.drawn.shape == (4, 3, 32, 32)
    assert torch.equal(seen.asked[1, 2], (1 - episode.query.x[0, 7, 0]) / 2)


def test_a_drawing_in_braille() -> None:
    ink = torch.zeros(8, 4)
    ink[0, 0] = ink[3, 1] = ink[7, 2] = 1.0
    assert terminal.dots(ink) == ["\u2881\u2800", "\u2800\u2840"]


class Checker(HTMLParser):
    """Every tag that is opened is closed, and nothing comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link")
        assert all((value or "").startswith(("#", "data:")) for name, value in attrs if name in ("src", "href"))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Such as a path of a picture."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


SMALL = demo.Effort(steps=2, tasks=(2, 3), episodes=2, character_steps=2, character_tasks=(2,), character_episodes=2)


def test_it_runs_to_a_page_that_stands_alone_and_again_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/demo")
    page = demo.show(folder, SMALL)
    told = capsys.readouterr()
    assert page.resolve().as_uri() in told.out
    assert "Squared error of each task" in told.out
    checker = Checker()
    checker.feed(page.read_text())
    assert checker.open == []
    text = " ".join(checker.text)
    assert "2 steps of 16 episodes" in text
    found = read([folder / "results.jsonl"])
    assert [row.tasks for row in found] == [2, 3]
    assert all(f"{row.value:.4f}" in text for row in found)
    assert len(re.findall("class=answer", page.read_text())) == 6
    (characters,) = read([folder / "characters/results.jsonl"])
    assert f"error {characters.value:.3f}" in told.out
    assert page.read_text().count("<img") == demo.FEW.tasks * (demo.FEW.shots + demo.FEW.queries)

    trained = (folder / "checkpoint.pt").stat().st_mtime_ns
    demo.show(folder, SMALL)
    assert (folder / "checkpoint.pt").stat().st_mtime_ns == trained
    assert "Already done" in capsys.readouterr().out
    with pytest.raises(ValueError, match="holds another experiment"):
        demo.show(folder, demo.Effort(steps=3))
