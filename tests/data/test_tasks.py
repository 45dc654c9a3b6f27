"""What is asked about pictures, against Pillow and numpy."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor

from sbmcl.data.tasks import Classification, Completion, Generation, Rotation, Task, rotate, task_named


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(size: int = 32) -> np.ndarray:
    """A picture of smooth ink whose every orientation differs, as bytes on white."""
    y, x = np.mgrid[:size, :size]
    ink = sum(np.exp(-((y - r) ** 2 + (x - c) ** 2) / 8) for r, c in ((8, 16), (16, 22), (20, 12), (8, 12)))
    return (255 * (1 - np.clip(ink, 0, 1))).astype(np.uint8)


def tensor(picture: np.ndarray) -> Tensor:
    return torch.tensor(picture)[None].float() / 127.5 - 1


def pictures(b: int, k: int, n: int) -> Tensor:
    return tensor(blobs()).expand(b, k, n, -1, -1, -1)


@pytest.mark.parametrize("quarters", range(4))
def test_quarter_turns_are_exact_and_counter_clockwise(quarters: int) -> None:
    turned = rotate(tensor(blobs())[None], torch.tensor([quarters * math.pi / 2]))
    np.testing.assert_allclose(turned[0, 0], np.rot90(tensor(blobs())[0], quarters), atol=1e-6)


@pytest.mark.parametrize("degrees", [10, 37, 125, 250])
def test_other_angles_are_those_of_pillow(degrees: int) -> None:
    """Counter-clockwise, nearest neighbour and white corners; a neighbour may differ by rounding."""
    right = Image.fromarray(blobs()).rotate(degrees, Image.Resampling.NEAREST, fillcolor=255)
    turned = rotate(tensor(blobs())[None], torch.tensor([math.radians(degrees)]))
    assert (turned[0] - tensor(np.asarray(right))).abs().mean() < 0.01
    assert (turned[0] - tensor(blobs())).abs().mean() > 0.05


def test_corners_are_white() -> None:
    turned = rotate(-torch.ones(1, 3, 32, 32), torch.tensor([math.pi / 4]))
    assert (turned[..., [0, 0, -1, -1], [0, -1, 0, -1]] == 1).all()
    assert (turned[..., 16, 16] == -1).all()


@pytest.mark.parametrize("offset", [False, True])
def test_a_picture_is_turned_by_its_target_and_at_most_the_class_is_offset(offset: bool) -> None:
    x, y = Rotation(offset=offset)(pictures(2, 3, 40), rng())
    target = torch.atan2(y[..., 1], y[..., 0])
    np.testing.assert_allclose(y.norm(dim=-1), 1, rtol=1e-5)
    candidates = torch.arange(0, 360, 2).deg2rad()
    every = rotate(tensor(blobs()).expand(len(candidates), -1, -1, -1), candidates)
    distance = (x.flatten(0, 2)[:, None] - every[None]).abs().flatten(2).mean(-1)
    applied = candidates[distance.argmin(-1)].view(2, 3, 40)
    difference = torch.polar(torch.ones(2, 3, 40), target - applied)
    by_class = difference.mean(-1)  # its length is 1 where all angles agree
    assert by_class.abs().min() > 0.99
    angles = by_class.angle().flatten()
    if offset:
        assert (angles[:, None] - angles[None] + torch.eye(6)).abs().min() > 0.02
    else:
        assert angles.abs().max() < 0.02


@pytest.mark.parametrize("offset", [False, True])
def test_angles_are_uniform_and_drawn_for_each_picture(offset: bool) -> None:
    _, y = Rotation(offset=offset)(pictures(1, 2, 1500), rng(1))
    turns = (torch.atan2(y[..., 1], y[..., 0]) / (2 * math.pi)) % 1
    for task in turns[0]:
        assert stats.kstest(task.numpy(), stats.uniform.cdf).pvalue > 1e-3


def test_completion_asks_for_the_lower_half() -> None:
    x, y = Completion()(pictures(1, 2, 3), rng())
    picture = tensor(blobs())
    assert torch.equal(x[0, 1, 2], picture[:, :16])
    assert torch.equal(y[0, 1, 2], picture[:, 16:])
    with pytest.raises(ValueError, match="even height"):
        Completion().shapes((1, 31, 32))


def test_classification_labels_by_place_and_leaves_pictures_alone() -> None:
    x, y = Classification()(pictures(2, 3, 4), rng())
    assert torch.equal(x, pictures(2, 3, 4))
    assert y.tolist() == [[[c] * 4 for c in range(3)]] * 2


def test_generation_has_no_targets() -> None:
    x, y = Generation()(pictures(1, 2, 3), rng())
    assert torch.equal(x, pictures(1, 2, 3))
    assert y is None


@pytest.mark.parametrize("task", [Classification(), Completion(), Rotation(), Rotation(offset=True), Generation()])
def test_shapes_are_those_that_come_out(task: Task) -> None:
    x, y = task(pictures(1, 2, 3), rng())
    x_shape, y_shape = task.shapes((1, 32, 32))
    assert x.shape[3:] == x_shape
    if y is not None:
        assert y.shape[3:] == y_shape


def test_tasks_have_names() -> None:
    assert isinstance(task_named("classification"), Classification)
    assert isinstance(task_named("completion"), Completion)
    assert isinstance(task_named("generation"), Generation)
    plain, offset = task_named("rotation"), task_named("rotation-offset")
    assert isinstance(plain, Rotation)
    assert not plain.offset
    assert isinstance(offset, Rotation)
    assert offset.offset
