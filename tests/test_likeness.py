"""Likeness against learners of which it is known what they draw, and nearness against loops."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from methods import METHODS
from sbmcl.config import ALPaCA, Sine
from sbmcl.config.base import DataConfig, Split
from sbmcl.data.episodes import EpisodeSource, rng_for
from sbmcl.data.images import ImageEpisodes
from sbmcl.data.store import Store
from sbmcl.data.tasks import Generation
from sbmcl.episode import Episode, Examples
from sbmcl.evaluate import Trained
from sbmcl.experiment import Experiment
from sbmcl.heads import VectorHead
from sbmcl.likeness import EACH, SAMPLES, among_others, drawn, likeness, nearness
from sbmcl.methods.base import Losses, Method
from sbmcl.results import LIKENESS, LIKENESS_DRAWINGS, LIKENESS_PRIOR, Row
from sbmcl.state import state


@dataclass(frozen=True)
class Blots(DataConfig):
    """Twelve classes of 16 pictures: each a few blots, in places that are the class's own, on paper that is never even."""

    name = "blots"
    apart: float = 1.0

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        rng = torch.Generator().manual_seed(3)
        centre = (torch.rand(12, 1, 1, 16, 16, generator=rng) < 0.2).float()
        paper = 0.3 * torch.rand(12, 16, 1, 16, 16, generator=rng)
        items = (255 * (1 - 0.6 * self.apart * centre - paper)).byte().flatten(0, 1)
        names = tuple("abcdefghijkl")
        return ImageEpisodes(Store("blots", items, 16 * torch.arange(13), names), task=Generation(), query_cap=10)


@state
class Heard:
    x: Tensor


class Parrot(Method[Heard]):
    """Draws what it has heard, or, as long as that is nothing, noise. Who is deaf draws noise ever after."""

    def __init__(self, *, deaf: bool = False):
        super().__init__()
        self.head, self.deaf = VectorHead(), deaf
        self.weight = nn.Parameter(torch.zeros(()))

    def init(self, batch: int, *, rng: Any = None) -> Heard:
        return Heard(torch.zeros(batch, 0, 1, 16, 16))

    def learn(self, state: Heard, examples: Examples) -> Heard:
        return Heard(torch.cat([state.x, examples.x], 1))

    def predict(self, state: Heard, x: Tensor, *, rng: Any = None, at_mode: bool = False) -> Tensor:
        raise NotImplementedError

    def meta_loss(self, episode: Episode, *, rng: Any = None) -> Losses:
        raise NotImplementedError

    def sample(self, state: Heard, n: int, *, rng: Any = None, at_mode: bool = False) -> Tensor:
        if self.deaf or not state.x.shape[1]:
            return torch.rand(len(state.x), n, 1, 16, 16, generator=rng) * 2 - 1
        return state.x[:, torch.randint(state.x.shape[1], (n,), generator=rng)]


def trained(method: Method[Any], data: DataConfig | None = None) -> Trained:
    experiment = Experiment("r", "blots/vae", "sbmcl", data or Blots(), ALPaCA())
    return Trained(experiment, method.eval(), 0, 0.0, "here")


def measured(method: Method[Any], data: DataConfig | None = None, **options: Any) -> dict[str, Row]:
    return {row.metric: row for row in likeness(trained(method, data), (3, 2), **options)}


def test_who_draws_what_it_has_seen_is_as_good_as_real_drawings() -> None:
    found = measured(Parrot(), episodes=20)
    assert found[LIKENESS].value > 0.95
    assert found[LIKENESS_DRAWINGS].value > 0.95
    assert found[LIKENESS_PRIOR].value == pytest.approx(0.5, abs=0.1)


def test_who_learns_nothing_is_right_half_of_the_time() -> None:
    """By the exchange of classes alone, and so are real drawings of classes that cannot be told apart."""
    found = measured(Parrot(deaf=True), Blots(apart=0.0), episodes=100)
    for row in found.values():  # 100 streams; the share of each is bound to be within 1, so this is 4 standard errors
        assert row.value == pytest.approx(0.5, abs=0.1)


def test_nothing_that_pictures_are_compared_with_was_in_the_stream() -> None:
    asked = among_others(trained(Parrot()), (3, 2))
    episode = asked.episode(0)
    assert len(episode.stream) == 6
    assert set(episode.stream.task[0].tolist()) == {0, 1, 2}
    assert episode.query.task[0].tolist() == [task for task in range(6) for _ in range(2 * EACH)]
    seen = {picture.numpy().tobytes() for picture in episode.stream.x[0]}
    asked_for = {picture.numpy().tobytes() for picture in episode.query.x[0]}
    assert len(asked_for) == 60
    assert not seen & asked_for


def test_rows_say_what_was_asked() -> None:
    found = measured(Parrot(), episodes=4)
    again = measured(Parrot(), episodes=4)
    assert {name: row.scores for name, row in found.items()} == {name: row.scores for name, row in again.items()}
    for row in found.values():
        assert (row.tasks, row.shots, row.queries, row.episodes) == (3, 2, 10, 4)
        assert len(row.scores or ()) == 4
        assert row.value == pytest.approx(np.mean(row.scores or ()))
    assert found[LIKENESS].state_bytes == 6 * 16 * 16 * 4
    assert all((SAMPLES * share) % 1 == pytest.approx(0, abs=1e-4) for share in found[LIKENESS].scores or ())
    assert measured(Parrot(), episodes=1, at_mode=True)[LIKENESS].method == "sbmcl-map"


@pytest.mark.parametrize("name", ["latent-vae", "latent-ddpm"])
def test_generative_methods_can_be_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbmcl.likeness.STEPS", 3)
    torch.manual_seed(0)
    method: Any = METHODS[name].build(METHODS[name].source()).eval()
    with torch.no_grad():
        samples = drawn(method, method.init(2), 3, rng=rng_for(0, "test", 0), steps=None)
    assert torch.equal(samples, method.sample(method.init(2), 3, rng=rng_for(0, "test", 0)))
    found = measured(method, episodes=2)
    assert set(found) == {LIKENESS, LIKENESS_PRIOR, LIKENESS_DRAWINGS}


def test_nearness_is_the_best_correlation_of_all_small_shifts() -> None:
    """Of 3 x 3 means (at a border, of what there is); two pixels each way in pictures of 16, the border repeated."""
    mine, theirs = torch.rand(2, 1, 3, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = nearness(mine, theirs)[0]

    def blurred(picture: np.ndarray) -> np.ndarray:
        each = range(16)
        return np.array([[picture[max(0, i - 1) : i + 2, max(0, j - 1) : j + 2].mean() for j in each] for i in each])

    for i, one in enumerate(mine[0, :, 0].numpy()):
        for j, other in enumerate(theirs[0, :, 0].numpy()):
            wide = np.pad(blurred(other), 2, mode="edge")
            shifts = [wide[y : y + 16, x : x + 16].ravel() for y in range(5) for x in range(5)]
            best = max(np.corrcoef(blurred(one).ravel(), shift)[0, 1] for shift in shifts)
            assert found[i, j].item() == pytest.approx(best, abs=1e-12)


def test_a_moved_drawing_is_still_the_same_and_even_paper_is_like_nothing() -> None:
    picture = -torch.ones(1, 1, 1, 32, 32)
    picture[..., 10:20, 12] = 1
    moved = 0.3 * picture.roll((3, -3), (3, 4)) + 0.2
    assert nearness(picture, moved).item() == pytest.approx(1, abs=1e-5)
    assert nearness(picture, moved.roll(2, 4)).item() == pytest.approx(1, abs=1e-5)
    assert nearness(picture, picture.roll(8, 4)).item() < 0.5
    assert nearness(torch.ones(1, 1, 1, 32, 32), picture).item() == 0


def test_who_draws_nothing_and_who_has_too_few_classes_is_refused() -> None:
    learner = ALPaCA(width=8, hidden=8).build(Sine().source("test"))
    with pytest.raises(ValueError, match=r"r draws no samples .* omniglot-vae-sbmcl"):
        likeness(replace(trained(learner), experiment=Experiment("r", "b", "m", Sine(), ALPaCA())))
    with pytest.raises(ValueError, match="12 classes here, fewer than 14 tasks"):
        likeness(trained(Parrot()), (7, 2))
    with pytest.raises(ValueError, match="7 shots and 10 queries"):
        likeness(trained(Parrot()), (3, 7))
