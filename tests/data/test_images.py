"""Episodes of pictures: the right classes, the right orientations, nothing drawn twice, everything from the generator."""

import hashlib
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.images import ImageEpisodes, Jitter, split_classes
from sbmcl.data.store import Store

SIZES = (9, 4, 6, 12, 5)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(sizes: tuple[int, ...] = SIZES) -> Store:
    """One-pixel pictures that carry their own row number."""
    rows = torch.arange(sum(sizes), dtype=torch.uint8).view(-1, 1, 1, 1)
    return Store("numbered", rows, torch.tensor([0, *sizes]).cumsum(0), tuple("abcdefgh"[: len(sizes)]))


def rows_of(x: Tensor) -> Tensor:
    return ((x.flatten(2)[..., 0] + 1) * 127.5).round().long()


def drawn_rows(source: ImageEpisodes, shape: EpisodeShape, batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Row numbers of stream and queries, by episode and task."""
    episode = source.draw(shape, batch, rng(seed))
    return tuple(rows_of(part.x).view(batch, shape.tasks, -1) for part in (episode.stream, episode.query))  # pyright: ignore


def class_of(rows: Tensor, sizes: tuple[int, ...] = SIZES) -> Tensor:
    return torch.searchsorted(torch.tensor(sizes).cumsum(0), rows.contiguous(), right=True)


def test_shots_and_queries_are_different_pictures_of_one_class_and_classes_are_different() -> None:
    stream, query = drawn_rows(ImageEpisodes(numbered()), EpisodeShape(3, 2, 2), 200)
    rows = torch.cat([stream, query], -1)
    assert (rows.sort(-1).values.diff(dim=-1) > 0).all()
    classes = class_of(rows)
    assert (classes == classes[..., :1]).all()
    assert (classes[..., 0].sort(-1).values.diff(dim=-1) > 0).all()


def test_classes_and_pictures_are_drawn_uniformly() -> None:
    """Classes of different sizes alike, at every place of an episode; and every picture of a class alike."""
    stream, query = drawn_rows(ImageEpisodes(numbered()), EpisodeShape(2, 1, 1), 6_000)
    for place in range(2):
        counts = class_of(stream[:, place, 0]).bincount(minlength=len(SIZES))
        assert stats.chisquare(counts).pvalue > 1e-3
    for rows in (stream, query):
        for start, size in zip(np.cumsum([0, *SIZES]), SIZES, strict=False):
            mine = rows[(rows >= start) & (rows < start + size)] - start
            assert stats.chisquare(mine.bincount(minlength=size)).pvalue > 1e-3


def test_pairs_of_classes_are_drawn_uniformly_and_in_random_order() -> None:
    stream, _ = drawn_rows(ImageEpisodes(numbered()), EpisodeShape(2, 1, 1), 6_000)
    pairs = class_of(stream[..., 0])
    counts = (pairs[:, 0] * len(SIZES) + pairs[:, 1]).bincount(minlength=len(SIZES) ** 2)
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3
    assert (counts > 0).sum() == len(SIZES) * (len(SIZES) - 1)


def test_only_the_chosen_classes_are_drawn() -> None:
    source = ImageEpisodes(numbered(), torch.tensor([1, 3]))
    stream, query = drawn_rows(source, EpisodeShape(2, 2, 2), 100)
    assert set(class_of(torch.cat([stream, query], -1)).flatten().tolist()) == {1, 3}
    assert source.classes == 2


def test_a_draw_is_a_function_of_the_generator_alone() -> None:
    source, shape = ImageEpisodes(numbered(), jitter=None), EpisodeShape(3, 2, 1)
    one = source.draw(shape, 4, rng_for(1, "train", 7))
    torch.manual_seed(5)
    source.draw(EpisodeShape(2, 1, 1), 3, rng(9))
    before = torch.get_rng_state()
    again = source.draw(shape, 4, rng_for(1, "train", 7))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.stream.x, again.stream.x)
    assert torch.equal(one.query.x, again.query.x)
    for other in (rng_for(1, "train", 8), rng_for(2, "train", 7), rng_for(1, "method", 7)):
        assert not torch.equal(one.stream.x, source.draw(shape, 4, other).stream.x)


def test_generators_of_different_purposes_never_meet() -> None:
    seeds = [
        rng_for(seed, purpose, index).initial_seed()
        for seed, purpose, index in itertools.product(range(3), ("train", "method", "validation"), range(200))
    ]
    assert len(set(seeds)) == len(seeds)


def test_pixels_lie_between_minus_one_and_one() -> None:
    store = Store("two", torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1), torch.tensor([0, 2]), ("a",))
    x = ImageEpisodes(store).draw(EpisodeShape(1, 1, 1), 20, rng()).stream.x
    assert set(x.flatten().tolist()) == {-1.0, 1.0}


def test_labels_count_tasks_in_order() -> None:
    episode = ImageEpisodes(numbered()).draw(EpisodeShape(3, 2, 1), 2, rng())
    assert episode.stream.targets.tolist() == [[0, 0, 1, 1, 2, 2]] * 2
    assert episode.query.targets.tolist() == [[0, 1, 2]] * 2


def one_picture(channels: int = 1) -> np.ndarray:
    """No two of its pixels are alike, so no two of its orientations are."""
    return np.arange(channels * 16, dtype=np.uint8).reshape(channels, 4, 4)


def eight(picture: np.ndarray) -> set[bytes]:
    turned = [np.rot90(picture, quarter, axes=(1, 2)) for quarter in range(4)]
    return {np.ascontiguousarray(t).tobytes() for t in turned + [t[:, :, ::-1] for t in turned]}


@pytest.mark.parametrize("channels", [1, 3])
def test_the_eight_orientations_are_the_symmetries_of_the_square(channels: int) -> None:
    """Each a class of its own, drawn alike; not five of them, some twice and some never."""
    picture = one_picture(channels)
    images = torch.tensor(picture).expand(2, -1, -1, -1).clone()
    source = ImageEpisodes(Store("one", images, torch.tensor([0, 2]), ("a",)), orientations=8)
    assert source.classes == 8
    x = source.draw(EpisodeShape(8, 1, 1), 50, rng()).stream.x
    pixels = ((x + 1) * 127.5).round().byte().numpy()
    for episode in pixels:
        assert {p.tobytes() for p in episode} == eight(picture)
    first = [
        p.tobytes()
        for p in ((source.draw(EpisodeShape(1, 1, 1), 1600, rng(1)).stream.x + 1) * 127.5).round().byte().numpy()
    ]
    assert stats.chisquare([first.count(kind) for kind in eight(picture)]).pvalue > 1e-3


def test_all_pictures_of_a_task_are_turned_alike() -> None:
    images = torch.tensor(one_picture()).expand(6, -1, -1, -1).clone()
    images[3:] += 100  # another class
    source = ImageEpisodes(Store("two", images, torch.tensor([0, 3, 6]), ("a", "b")), orientations=8)
    assert source.classes == 16
    episode = source.draw(EpisodeShape(10, 2, 1), 20, rng())
    by_task = torch.cat([episode.stream.x.view(20, 10, 2, -1), episode.query.x.view(20, 10, 1, -1)], dim=2)
    assert (by_task == by_task[:, :, :1]).all()


def test_only_square_pictures_are_turned() -> None:
    store = Store("wide", torch.zeros(2, 1, 2, 4, dtype=torch.uint8), torch.tensor([0, 2]), ("a",))
    with pytest.raises(ValueError, match="only square pictures"):
        ImageEpisodes(store, orientations=8)
    with pytest.raises(ValueError, match="1 or 8 orientations"):
        ImageEpisodes(numbered(), orientations=4)


def test_episodes_that_cannot_be_drawn_are_refused_with_the_reason() -> None:
    source = ImageEpisodes(numbered())
    with pytest.raises(ValueError, match="5 classes here, fewer than 6 tasks"):
        source.check(EpisodeShape(6, 1, 1))
    with pytest.raises(ValueError, match="only 4 examples, fewer than 3 shots and 2 queries"):
        source.draw(EpisodeShape(2, 3, 2), 1, rng())
    source.check(EpisodeShape(5, 2, 2))
    with pytest.raises(ValueError, match="at least one of its shots"):
        EpisodeShape(1, 0, 1)


NAMES = tuple(f"alphabet{i // 10}/character{i % 10:02}" for i in range(100))


def test_held_out_classes_are_chosen_by_name() -> None:
    kept, held = split_classes(NAMES, 0.1, seed=0)
    assert len(held) == 10
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(100))
    backwards_kept, backwards_held = split_classes(NAMES[::-1], 0.1, seed=0)
    assert {NAMES[i] for i in held} == {NAMES[::-1][i] for i in backwards_held}
    assert {NAMES[i] for i in kept} == {NAMES[::-1][i] for i in backwards_kept}
    assert {*split_classes(NAMES, 0.1, seed=1)[1].tolist()} != {*held.tolist()}
    assert len(split_classes(NAMES, 0.0, seed=0)[1]) == 0


def test_held_out_classes_are_the_same_on_every_machine() -> None:
    held = "\n".join(NAMES[i] for i in split_classes(NAMES, 0.1, seed=0)[1])
    assert hashlib.sha256(held.encode()).hexdigest()[:16] == "403091c491486695"


def dot(row: float, column: float, size: int = 33) -> Tensor:
    """A dark blurred dot on white, as bytes."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    ink = (-((y - row) ** 2 + (x - column) ** 2) / 6).exp()
    return (255 * (1 - ink)).round().byte()


def where(x: Tensor) -> Tensor:
    """Centre of the ink of each picture: row and column, from the middle."""
    ink = (1 - x).flatten(0, -3)
    grid = torch.arange(x.shape[-1]) - (x.shape[-1] - 1) / 2
    mass = ink.sum((-2, -1))
    return torch.stack([(ink.sum(-1) * grid).sum(-1), (ink.sum(-2) * grid).sum(-1)], -1) / mass.unsqueeze(-1)


def jittered(jitter: Jitter, row: float = 16, column: float = 24) -> Tensor:
    """Where a dot (at the middle, eight to the right) is found in 400 jittered pictures."""
    images = dot(row, column).expand(400, 1, -1, -1).clone()
    source = ImageEpisodes(Store("dot", images, torch.tensor([0, 400]), ("a",)), jitter=jitter)
    return where(source.draw(EpisodeShape(1, 399, 1), 1, rng()).stream.x)


def assert_fills(values: Tensor, low: float, high: float, slack: float = 0.15) -> None:
    """Uniform from end to end, within what a blurred dot can be measured to."""
    assert low - slack <= values.min() < low + 0.05 * (high - low) + slack
    assert high + slack >= values.max() > high - 0.05 * (high - low) - slack
    assert stats.kstest(values.numpy(), stats.uniform(low, high - low).cdf).pvalue > 1e-4


def test_no_jitter_leaves_pictures_alone() -> None:
    assert not Jitter()
    assert (jittered(Jitter()) - torch.tensor([0.0, 8.0])).abs().max() < 0.05


def test_jitter_turns() -> None:
    row, column = jittered(Jitter(degrees=20.0)).unbind(-1)
    assert_fills(torch.atan2(row, column) * 180 / math.pi, -20, 20, slack=1)
    np.testing.assert_allclose(torch.hypot(row, column), 8, atol=0.15)


def test_jitter_shifts() -> None:
    row, column = jittered(Jitter(shift=0.1), 16, 16).unbind(-1)
    assert_fills(row, -3.3, 3.3)
    assert_fills(column, -3.3, 3.3)
    assert abs(np.corrcoef(row, column)[0, 1]) < 0.15


def test_jitter_scales_each_axis_by_itself() -> None:
    row, column = jittered(Jitter(scale=0.2), 22, 22).unbind(-1)
    assert_fills(6 / row, 0.8, 1.2, slack=0.03)
    assert_fills(6 / column, 0.8, 1.2, slack=0.03)
    assert abs(np.corrcoef(row, column)[0, 1]) < 0.15


def test_jitter_shears() -> None:
    """Columns move in proportion to their row; rows keep to a factor near one."""
    row, column = jittered(Jitter(shear=15.0), 22, 16).unbind(-1)
    assert_fills(torch.atan2(column, row) * 180 / math.pi, -15, 15, slack=1)


def test_jitter_differs_from_picture_to_picture_and_follows_the_generator() -> None:
    one, again = jittered(Jitter(10.0, 5.0, 0.1, 0.1)), jittered(Jitter(10.0, 5.0, 0.1, 0.1))
    assert torch.equal(one, again)
    assert len(one.unique(dim=0)) == len(one)
