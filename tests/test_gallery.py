"""Pictures of untrained methods: what is on them is what the methods answered, and it can be read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image
from torch import Tensor, nn

from methods import METHODS
from sbmcl import gallery as rooms
from sbmcl.config import PN, ALPaCA
from sbmcl.config.base import DataConfig, MethodConfig, Split
from sbmcl.data.episodes import EpisodeSource
from sbmcl.data.store import Store
from sbmcl.data.tasks import Classification
from sbmcl.data.vectors import Regression, VectorEpisodes
from sbmcl.episode import Episode, Examples
from sbmcl.evaluate import Trained
from sbmcl.experiment import Experiment
from sbmcl.gallery import SHOWN, gallery
from sbmcl.gallery.drawing import DOTS, WIDTH, Strip, panels, sheet
from sbmcl.heads import AngleHead, ClassHead
from sbmcl.methods.base import Losses, Method

PAIR = (3, 2)


@dataclass(frozen=True)
class SixClasses(DataConfig):
    """The source that `methods.py` has a method beside, with six queries of each task."""

    name = "six"
    method: str = ""

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        source: Any = METHODS[self.method].source()
        source.query_cap = 6
        return source


def trained(name: str, label: str = "sbmcl", **changes: Any) -> Trained:
    torch.manual_seed(0)
    case, data = METHODS[name], SixClasses(name)
    benchmark = f"six/{data.source('test').kind}"
    experiment = Experiment(f"six-{name}", benchmark, label, data, ALPaCA())
    method = case.build(case.source()).eval()
    return Trained(replace(experiment, **changes), method, 0, 0.0, "here")


EVERY_KIND = {
    "classes": ["gemcl", "oml-classes"],
    "vector": ["alpaca-nll", "latent-vector", "tf-vector"],
    "image": ["tf-image", "linear-tf-image"],
    "angle": ["latent-rotation", "oml-angle"],
    "binary": ["latent-vae"],
    "generation": ["latent-ddpm"],
}


@pytest.mark.parametrize("kind", SHOWN)
def test_every_kind_of_data_has_pictures_that_can_be_read(kind: str, tmp_path: Path) -> None:
    runs = [trained(name, label=name) for name in EVERY_KIND[kind]]
    found = list(gallery(runs, PAIR, steps=2))
    assert len(found) >= 2
    assert all(f"six {kind}" in picture.caption for picture in found)
    for picture in found:
        with Image.open(picture.write(tmp_path)) as image:
            assert image.format == "PNG"
            assert image.width == DOTS * WIDTH
        written = [text for text in picture.canvas.findobj(Text) if text.get_text().strip() and text.get_visible()]
        page = FigureCanvasAgg(picture.canvas)
        page.draw()
        renderer = page.get_renderer()
        whole = picture.canvas.bbox
        for text in written:
            assert text.get_fontsize() * picture.canvas.dpi / 72 >= 12, text
            box = text.get_window_extent(renderer)
            assert whole.x0 <= box.x0, text
            assert box.x1 <= whole.x1, text
            assert whole.y0 <= box.y0, text
            assert box.y1 <= whole.y1, text
    captions = [picture.caption for picture in found]
    assert "stream of 3 tasks of 2 shots" in captions[0]
    assert all(name in captions[1] for name in EVERY_KIND[kind])
    assert {path.stem for path in tmp_path.iterdir()} == {
        "-".join("".join(c if c.isalnum() else " " for c in caption).split()) for caption in captions
    }


def test_small_pictures_are_on_the_page_as_they_are(tmp_path: Path) -> None:
    grey = torch.linspace(-1, 1, 256).view(1, 1, 16, 16)
    colour = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    page = sheet("title", [Strip("one", grey), Strip("two", colour, marked=(True,), notes=("note",))])
    path = rooms.Picture("x", page).write(tmp_path)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    for picture in (grey, colour):
        levels = ((picture[0].expand(3, -1, -1).numpy().transpose(1, 2, 0) + 1) * 127.5).round()
        block = levels.repeat(8, axis=0).repeat(8, axis=1)  # 16 pixels to 64 px of two dots each
        left = 2 * (12 + 124)  # beside the names
        gaps = (np.abs(pixels[y : y + 128, left : left + 128] - block).max() for y in range(0, len(pixels) - 127, 2))
        assert min(gaps) <= 1


def test_what_is_marked_has_a_frame_in_grey_too() -> None:
    white = torch.ones(2, 1, 16, 16)
    (page,) = sheet("", [Strip("", white, marked=(False, True))]).axes[0].images
    light = np.asarray(page.get_array()).mean(-1)
    middle = light[light.shape[0] // 2 + 20]
    assert (middle < 0.5).sum() == 2 * 2 * 3  # two sides of 3 px, two dots each


Sheets = list[tuple[str, list[Any]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Sheets:
    """What was handed over to be drawn: titles, with strips or rows of panels."""
    found: Sheets = []

    def spy(draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawing(title: str, parts: list[Any], *rest: Any) -> Any:
            found.append((title, parts))
            return draw(title, parts, *rest)

        return drawing

    monkeypatch.setattr(rooms, "sheet", spy(sheet))
    monkeypatch.setattr(rooms, "panels", spy(panels))
    return found


class Knowing(Method[Tensor]):
    """Answers with a function of the true answers, which it finds by the query; knows nothing else."""

    def __init__(self, head: Any, episode: Episode, answer: Callable[[Tensor], Tensor]):
        super().__init__()
        self.head, self.asked, self.answer = head, episode.query, answer
        self.weight = nn.Parameter(torch.zeros(()))

    def init(self, batch: int, *, rng: Any = None) -> Tensor:
        return torch.zeros(batch, 1)

    def learn(self, state: Tensor, examples: Examples) -> Tensor:
        return state

    def predict(self, state: Tensor, x: Tensor, *, rng: Any = None, at_mode: bool = False) -> Tensor:
        same = (self.asked.x.flatten(2)[0][None] == x.flatten(2)[0][:, None]).all(-1)
        return self.answer(self.asked.targets[:, same.int().argmax(1)])

    def meta_loss(self, episode: Episode, *, rng: Any = None) -> Losses:
        raise NotImplementedError


def knowing(name: str, head: Any, answer: Callable[[Tensor], Tensor]) -> tuple[Trained, Episode]:
    run = trained(name)
    _, episode = rooms.common_stream([run], PAIR, 0)
    return replace(run, method=Knowing(head, episode, answer).eval()), episode


def test_who_knows_the_angle_turns_everything_upright(drawn: Sheets) -> None:
    """And who is a quarter turn off shows it, with the sign."""
    right, _ = knowing("latent-rotation", AngleHead(), lambda y: 3 * y)
    list(gallery([right], PAIR))
    turned, truth, answer = drawn[1][1]
    assert torch.equal(answer.pictures, truth.pictures)
    assert not torch.equal(turned.pictures, truth.pictures)
    assert {note.strip("+-−") for note in answer.notes} == {"0°"}
    quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])  # (cos, sin) of an angle to those of the angle and 90 degrees
    off, _ = knowing("latent-rotation", AngleHead(), lambda y: y @ quarter)
    list(gallery([off], PAIR))
    *_, answer = drawn[3][1]
    assert set(answer.notes) == {"+90°"}
    for mine, upright in zip(answer.pictures, truth.pictures, strict=True):
        agree = (
            (torch.rot90(mine, 1, (1, 2)) - upright).abs().mean()
        )  # rot90 turns counter-clockwise: the missing quarter
        assert agree < (mine - upright).abs().mean() / 2


def test_mistakes_are_marked_and_come_first(drawn: Sheets) -> None:
    """Everything is taken for the first class, a quarter as sure as sure can be."""
    run, episode = knowing("gemcl", ClassHead(), lambda y: torch.tensor([2.0, 1.0, 0.0]).expand(*y.shape, 3))
    list(gallery([run], PAIR))
    queries, answer = drawn[1][1]
    assert answer.marked == tuple(task > 0 for task in range(3) for _ in range(len(queries.pictures) // 3))
    share = round(100 / (1 + np.exp(-1) + np.exp(-2)))
    assert set(answer.notes) == {f"{share}%", f"✗ {share}%"}
    assert all(torch.equal(picture, episode.stream.x[0, 0]) for picture in answer.pictures)
    assert len(drawn) == 2  # it does not know what is novel

    order = torch.arange(len(episode.query)).float()
    doubt, number = torch.stack([order, -order], -1), episode.query.x.flatten(2)[0].sum(-1)

    class Doubting(Knowing):
        def predict(self, state: Tensor, x: Tensor, *, rng: Any = None, at_mode: bool = False) -> Tensor:
            place = (number[None] == x.flatten(2)[0].sum(-1)[:, None]).int().argmax(1)
            return torch.cat([torch.zeros(1, len(place), 1), doubt[place][None]], -1)

    method = Doubting(ClassHead(), episode, lambda y: y)
    list(gallery([replace(run, method=method.eval())], PAIR))
    each = len(episode.query) // 3
    shown = len(drawn[-1][1][0].pictures) // 3
    lasts = episode.query.x[0, each - shown : each].flip(0)  # the doubt of the first class grows with the place
    assert torch.equal(drawn[-1][1][0].pictures[:shown], lasts)


def test_a_class_never_met_is_no_class_at_all(drawn: Sheets) -> None:
    """Transformers and OML can answer with a code that nobody has."""
    run, _ = knowing("tf-classes", ClassHead(), lambda y: torch.eye(7)[5].expand(*y.shape, 7))
    list(gallery([run], PAIR))
    _, answer = drawn[1][1]
    assert all(answer.marked)
    assert answer.pictures.abs().max() == 0


def test_novelty_goes_from_what_was_learned_to_what_was_not(drawn: Sheets) -> None:
    *_, picture = gallery([trained("gemcl"), trained("oml-classes", label="oml")], PAIR)
    assert "by SB-MCL after" in picture.caption  # OML cannot tell
    title, (ranked,) = drawn[2]
    assert title.endswith("after 2 of 3 tasks of 2 shots")
    assert ranked.notes == tuple("new" if new else "learned" for new in ranked.marked)
    assert ranked.marked == tuple(sorted(ranked.marked))  # six far classes: even an untrained encoder tells them apart
    assert ranked.detail == "AUROC 1"


def test_completions_are_the_upper_half_and_the_answer(drawn: Sheets) -> None:
    run = trained("tf-image")
    list(gallery([run], PAIR))
    (_, stream), (_, (given, truth, answer)) = drawn
    question, episode = rooms.common_stream([run], PAIR, 0)
    assert len(stream) == 3
    assert torch.equal(stream[1].pictures[0, :, :8], episode.stream.x[0, 2])
    assert torch.equal(stream[1].pictures[0, :, 8:], episode.stream.targets[0, 2])
    each = question.shape.queries
    shown = torch.tensor([task * each + i for task in range(3) for i in range(3)])
    assert torch.equal(truth.pictures[:, :, 8:], episode.query.targets[0, shown])
    for strip in (given, truth, answer):
        assert torch.equal(strip.pictures[:, :, :8], episode.query.x[0, shown])
    assert not torch.equal(answer.pictures, truth.pictures)


def test_functions_are_drawn_with_the_band_of_their_predictive(drawn: Sheets) -> None:
    runs = [trained("alpaca-nll", label="alpaca"), trained("latent-vector", label="latent")]
    list(gallery(runs, PAIR))
    (_, (stream,)), (_, (banded, plain)) = drawn
    assert [len(panel.truth) for panel in stream.panels] == [2, 2, 2]
    assert all(panel.deviation is None for panel in plain.panels)
    method, (question, episode) = runs[0].method, rooms.common_stream(runs[:1], PAIR, 0)
    with torch.no_grad():
        found = method.predict(method.learn(method.init(1), episode.stream), episode.query.x)
    place = 2 * question.shape.queries
    covariance = found.noise_tril @ found.noise_tril.T * found.spread[0, place]
    torch.testing.assert_close(banded.panels[2].deviation, covariance.diagonal().sqrt())
    assert torch.equal(banded.panels[2].answer, found.mean[0, place])
    assert torch.equal(banded.panels[2].truth[0], episode.query.targets[0, place])


@dataclass(frozen=True)
class Numbers(DataConfig):
    """Vectors of five numbers, to tell apart or to predict two of."""

    name = "numbers"
    targets: int = 2

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        items = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
        store = Store("numbers", items, 10 * torch.arange(7), tuple("abcdef"))
        task = Regression(self.targets) if self.targets else Classification()
        return VectorEpisodes(store, task=task, query_cap=4)


def of_numbers(targets: int, method: MethodConfig) -> Trained:
    data = Numbers(targets)
    experiment = Experiment("numbers", "numbers/regression", "sbmcl", data, method)
    return Trained(experiment, method.build(data.source("test")).eval(), 0, 0.0, "here")


def test_short_answers_are_strung_together(drawn: Sheets) -> None:
    run = of_numbers(2, ALPaCA(width=8, hidden=8))
    list(gallery([run], PAIR))
    _, episode = rooms.common_stream([run], PAIR, 0)
    panel = drawn[1][1][0].panels[1]
    assert panel.answer.shape == panel.deviation.shape == (8,)
    assert torch.equal(panel.truth[0], episode.query.targets[0, 4:8].flatten())


def test_the_same_number_is_the_same_stream() -> None:
    run = trained("latent-vae")
    for number in (0, 1):
        first, again = (
            [p.canvas.axes[0].images[0].get_array() for p in gallery([run], PAIR, number=number)] for _ in "ab"
        )
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(first, again, strict=True))
    assert not np.array_equal(first[0], next(gallery([run], PAIR)).canvas.axes[0].images[0].get_array())


def test_what_cannot_be_shown_is_refused_before_anything_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbmcl.gallery.learn_in_chunks", None)
    refused: list[tuple[list[Trained], dict[str, Any], str]] = [
        ([of_numbers(0, PN(width=8))], {}, "no picture to make; 'sbmcl evaluate'"),
        ([trained("gemcl"), trained("latent-vae")], {}, "cannot stand side by side; show them one after the other"),
        ([trained("gemcl"), trained("gemcl")], {}, "several of the runs are six-gemcl, seed 0"),
        ([trained("latent-ddpm")], {"steps": 51}, "draws in 1 to 50 steps, not in 51"),
        ([trained("latent-ddpm")], {"steps": 0}, "draws in 1 to 50 steps, not in 0"),
        ([trained("gemcl")], {"pair": (7, 2)}, "fewer than 7 tasks"),
        ([replace(trained("latent-vae"), method=trained("gemcl").method)], {}, "draws no samples"),
    ]
    for runs, options, words in refused:
        with pytest.raises(ValueError, match=words):
            gallery(runs, **{"pair": PAIR, **options})


def test_runs_have_names_that_tell_them_apart() -> None:
    one, other = trained("gemcl"), trained("gemcl", recipe="six-gemcl-long")
    assert rooms.called([one, trained("gemcl", label="oml")], False) == ["SB-MCL", "OML"]
    assert rooms.called([one], True) == ["SB-MCL (MAP)"]
    assert rooms.called([one, other], False) == ["six-gemcl", "six-gemcl-long"]
    assert rooms.called([one, trained("gemcl", seed=1)], False) == ["six-gemcl, seed 0", "six-gemcl, seed 1"]
