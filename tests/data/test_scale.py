"""The sampler: exactly uniform without replacement, whatever the sizes, and opening or drawing costs no memory."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.images import ImageEpisodes
from sbmcl.data.sampler import distinct
from sbmcl.data.store import Store
from sbmcl.data.tasks import task_named


@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_arrangement_is_equally_likely(size: int) -> None:
    drawn = distinct(torch.full((100, 200), size), 3, rng_for(0, "test", size)).flatten(0, 1)
    arrangements = list(itertools.permutations(range(size), 3))
    found = dict.fromkeys(arrangements, 0)
    for row in drawn.tolist():
        found[tuple(row)] += 1
    assert chisquare(list(found.values())).pvalue > 1e-4


def test_sizes_may_be_very_unequal() -> None:
    sizes = torch.tensor([[20, 1_000_000_000], [21, 700]])
    drawn = distinct(sizes, 20, rng_for(0, "test", 0))
    assert drawn.shape == (2, 2, 20)
    assert bool((drawn < sizes.unsqueeze(-1)).all())
    assert bool((drawn >= 0).all())
    assert bool((drawn.sort(-1).values.diff(dim=-1) > 0).all())
    assert drawn[0, 0].sort().values.tolist() == list(range(20))
    assert drawn[0, 1].max() > 100_000_000


def unequal() -> Store:
    """Pictures that say which class and which row they are of."""
    counts = torch.tensor([4, 900, 7, 30, 5])
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    label, within = torch.arange(5).repeat_interleave(counts), torch.arange(946) - starts[:-1].repeat_interleave(counts)
    items = torch.stack([label, within % 256, within // 256, 0 * label], -1).byte().view(-1, 1, 2, 2)
    return Store("unequal", items, starts, tuple("abcde"))


def test_draws_are_distinct_examples_of_distinct_classes() -> None:
    source = ImageEpisodes(unequal(), torch.tensor([1, 2, 4]))
    episode = source.draw(EpisodeShape(3, 3, 2), 50, rng_for(0, "test", 0))
    x = torch.cat([episode.stream.x, episode.query.x], 1)
    number = ((x + 1) * 127.5).round().long().flatten(2)
    assert set(number[..., 0].unique().tolist()) == {1, 2, 4}
    for one in number:
        assert len({tuple(row) for row in one.tolist()}) == 15
    for task in range(3):
        assert bool((number[:, task * 3 : task * 3 + 3, 0] == number[:, 9 + task * 2, :1]).all())


def test_a_draw_follows_its_generator_alone() -> None:
    source = ImageEpisodes(unequal(), torch.tensor([1, 3]))
    shape = EpisodeShape(2, 3, 2)
    first = source.draw(shape, 4, rng_for(0, "test", 7))
    source.draw(shape, 4, rng_for(0, "test", 8))
    assert torch.equal(first.stream.x, source.draw(shape, 4, rng_for(0, "test", 7)).stream.x)


def test_impossible_episodes_are_refused_at_once() -> None:
    source = ImageEpisodes(unequal())
    with pytest.raises(ValueError, match="5 classes here, fewer than 6"):
        source.check(EpisodeShape(6, 1, 1))
    with pytest.raises(ValueError, match="classes of only 4 examples"):
        source.draw(EpisodeShape(2, 3, 2), 1, rng_for(0, "test", 0))


@pytest.mark.parametrize("name", ["classification", "completion", "rotation", "rotation-offset", "generation"])
def test_every_task_type_draws_from_any_store(name, tmp_path: Path) -> None:
    unequal().save(tmp_path / "s")
    source = ImageEpisodes(Store.load(tmp_path / "s"), torch.tensor([1, 3]), task=task_named(name))
    episode = source.draw(EpisodeShape(2, 3, 2), 4, rng_for(0, "test", 0))
    assert episode.stream.x.shape == (4, 6, *source.x_shape)
    assert episode.stream.y is None or episode.stream.y.shape == (4, 6, *source.y_shape)


def test_a_store_is_mapped_and_not_read(tmp_path: Path) -> None:
    """A file with a gigabyte of holes opens and draws without taking a gigabyte of memory."""
    from sbmcl.data.store import _write_header

    path, n = tmp_path / "sparse", 1 << 20
    with path.open("wb") as file:
        _write_header(file, "sparse", ["a", "b"], np.array([0, n // 2, n]), np.dtype(np.uint8), (n, 1, 32, 32))
        file.truncate(file.tell() + n * 1024)
    before = private_bytes()
    source = ImageEpisodes(Store.load(path))
    source.draw(EpisodeShape(2, 10, 10), 4, rng_for(0, "test", 0))
    assert private_bytes() - before < 50_000_000


def private_bytes() -> int:
    """Memory that is this process's own, not pages of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
