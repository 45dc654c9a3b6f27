"""Episodes: which example goes where."""

import pytest
import torch

from sbmcl.episode import Examples, episode_of_tasks, stack_episodes


def laid_out() -> torch.Tensor:
    """Two episodes of three tasks with five examples each; a number says which it is."""
    return torch.arange(2 * 3 * 5).view(2, 3, 5, 1).float()


def test_first_shots_are_the_stream_task_after_task_and_the_rest_are_queries() -> None:
    episode = episode_of_tasks(laid_out(), 10 * laid_out(), shots=2)
    assert episode.stream.x[0, :, 0].tolist() == [0, 1, 5, 6, 10, 11]
    assert episode.query.x[0, :, 0].tolist() == [2, 3, 4, 7, 8, 9, 12, 13, 14]
    assert episode.stream.x[1, :, 0].tolist() == [15, 16, 20, 21, 25, 26]
    assert torch.equal(episode.stream.targets, 10 * episode.stream.x)
    assert torch.equal(episode.query.targets, 10 * episode.query.x)
    assert episode.stream.task.tolist() == [[0, 0, 1, 1, 2, 2]] * 2
    assert episode.query.task.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 2
    assert (episode.size, len(episode.stream), len(episode.query)) == (2, 6, 9)


def test_a_part_of_a_stream_is_a_stream() -> None:
    stream = episode_of_tasks(laid_out(), laid_out(), shots=2).stream
    part = stream[1:4]
    assert part.x[1, :, 0].tolist() == [16, 20, 21]
    assert torch.equal(part.targets, part.x)
    assert part.task[0].tolist() == [0, 1, 1]
    assert len(stream[6:]) == 0


def test_episodes_stack_side_by_side() -> None:
    episode = episode_of_tasks(laid_out(), None, shots=2)
    both = stack_episodes([episode, episode])
    assert both.size == 4
    assert torch.equal(both.stream.x[2:], episode.stream.x)
    assert both.stream.y is None
    assert both.to(torch.device("cpu")).query.task.shape == (4, 9)


def test_targets_that_are_not_there_are_asked_for_in_vain() -> None:
    with pytest.raises(ValueError, match="have no targets"):
        _ = Examples(torch.zeros(1, 2, 3), None, torch.zeros(1, 2, dtype=torch.long)).targets
