"""Glyphs: classes follow from their numbers alone, drawings are legible, alike within a class and different between."""

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from sbmcl.config import Glyphs
from sbmcl.data.episodes import EpisodeShape, EpisodeSource, rng_for
from sbmcl.data.glyphs import EVERY, POINTS, SIZE, STILL, Dice, GlyphSource, drawings, programs, trace, walk
from sbmcl.data.hand import Hand
from sbmcl.data.tasks import task_named

SHAPE = EpisodeShape(5, 4, 3)


def rng(index: int = 0) -> torch.Generator:
    return rng_for(0, "test", index)


def ideal(number: Tensor) -> Tensor:
    """Drawings by a hand without noise."""
    return drawings(programs(number), 1, STILL, rng()).squeeze(1)


def test_the_hash_is_splitmix64() -> None:
    """Against the published generator, in whole numbers without bounds; a class takes from its own stream."""

    def mixed(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    for number in (0, 1, 7, EVERY * 2 + 5):
        state = mixed(number)
        expected = [mixed((state + place * 0x9E3779B97F4A7C15) % 2**64) % 2**24 / 2**24 for place in range(1, 5)]
        dice = Dice(torch.tensor([number]))
        assert [dice.uniform().item(), *dice.uniform(3)[0].tolist()] == expected


def test_dice_are_fair() -> None:
    dice = Dice(torch.arange(20_000))
    assert kstest(dice.uniform(), "uniform").pvalue > 1e-4
    assert kstest(Dice(torch.tensor([3])).uniform(20_000)[0], "uniform").pvalue > 1e-4
    shares = torch.bincount(dice.choice([0.5, 0.2, 0.3])) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.2, 0.3]), atol=0.02, rtol=0)


def test_a_glyph_follows_from_its_number_alone() -> None:
    numbers = torch.tensor([5, 123_456_789, EVERY - 1])
    torch.testing.assert_close(ideal(numbers)[1:2], ideal(numbers[1:2]), atol=1e-3, rtol=0)
    torch.testing.assert_close(ideal(numbers.flip(0)), ideal(numbers).flip(0), atol=1e-3, rtol=0)


def test_every_glyph_can_be_drawn() -> None:
    """Many programs: finite, on the paper, with ink, and with a white border; by an unsteady hand too."""
    for hand in (Hand(), Hand(40.0, 1.0, 1.0, 40.0, 0.5, 40.0, 40.0, 0.3, 20.0, 0.5)):
        for first in range(0, 4000, 500):
            ink = drawings(programs(torch.arange(first, first + 500)), 2, hand, rng(first))
            assert bool(ink.isfinite().all())
            assert ink.min() >= 0
            assert ink.max() <= 1
            assert ink.flatten(2).sum(-1).min() > 1


def test_strokes_touch_their_anchors() -> None:
    """Drawn without noise, the contact point of an attached stroke lies on its anchor stroke."""
    program = programs(torch.arange(300))
    path = walk(program)
    points = trace(program, path, 1, STILL, rng())[:, 0]
    stroke = path.piece // program.length.shape[-1]
    strokes = (program.length.sum(-1) > 0).sum(-1)
    touching = 0
    for i in range(300):
        for s in range(1, int(strokes[i])):
            if program.gap[i, s].norm() > 0:
                continue
            mine, other = points[i, stroke[i] == s], points[i, stroke[i] == program.anchor[i, s]]
            if len(mine) and len(other):
                touching += 1
                assert torch.cdist(mine, other).min() < 1e-3
    assert touching > 100


def test_points_lie_along_the_pieces_that_there_are() -> None:
    program = programs(torch.arange(500))
    path = walk(program)
    assert path.points.sum((1, 2)).unique().tolist() == [POINTS]
    assert bool((path.points[program.length == 0] == 0).all())
    assert bool((path.piece.diff(dim=1) >= 0).all())
    assert bool(((path.share >= 0) & (path.share <= 1 + 1e-4)).all())


def prototype_error(source: EpisodeSource) -> float:
    """Of the nearest mean picture, 5 classes: far from chance where classes look alike within and differ between."""
    episode = source.draw(EpisodeShape(5, 10, 10), 20, rng())
    codes = torch.nn.functional.avg_pool2d(episode.stream.x.flatten(0, 1), 4).view(20, 5, 10, -1).mean(2)
    asked = torch.nn.functional.avg_pool2d(episode.query.x.flatten(0, 1), 4).view(20, 50, -1)
    return (torch.cdist(asked, codes).argmin(-1) != episode.query.task).float().mean().item()


def test_drawings_of_a_class_are_alike_but_not_the_same() -> None:
    assert 0.01 < prototype_error(GlyphSource()) < 0.35
    assert prototype_error(GlyphSource(hand=STILL)) == 0
    pictures = GlyphSource().pictures(torch.arange(10), 2, rng())
    assert bool(((pictures[:, 0] - pictures[:, 1]).abs().amax((1, 2, 3)) > 0.1).all())


def test_a_draw_follows_its_generator_alone() -> None:
    source = GlyphSource()
    first = source.draw(SHAPE, 2, rng(1))
    source.draw(SHAPE, 2, rng(2))
    assert torch.equal(first.stream.x, source.draw(SHAPE, 2, rng(1)).stream.x)


def test_splits_never_share_a_glyph() -> None:
    train, test = (GlyphSource(family=family, hand=STILL).pictures(torch.arange(20), 1, rng()) for family in (0, 2))
    assert bool((train.flatten(1) != test.flatten(1)).any(1).all())


def test_few_classes_are_few() -> None:
    source = Glyphs(classes=5).source("train")
    with pytest.raises(ValueError, match="5 glyphs here, fewer than 6"):
        source.draw(EpisodeShape(6, 1, 1), 1, rng())
    still = Glyphs(classes=5, hand=STILL).source("train")
    pictures = still.draw(SHAPE, 6, rng()).stream.x.flatten(0, 1)
    assert len(pictures.unique(dim=0)) == 5
    assert source.draw(SHAPE, 1, rng()).stream.task.unique().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("task", ["completion", "rotation", "generation"])
def test_every_task_type_can_be_asked(task) -> None:
    source = GlyphSource(task=task_named(task))
    episode = source.draw(SHAPE, 2, rng())
    assert episode.stream.x.shape == (2, 20, *source.x_shape)
    assert source.x_shape in {(1, SIZE, SIZE), (1, SIZE // 2, SIZE)}


def test_a_negative_spread_is_refused() -> None:
    with pytest.raises(ValueError, match="wobble is a spread"):
        Hand(wobble=-1.0)
