"""States are immutable trees of tensors."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import Tensor

from sbmcl.beliefs import MatrixNormal
from sbmcl.state import map_tensors, state, state_bytes, tensors


@state
class Pair:
    first: Tensor
    second: Tensor | None


def test_a_state_is_frozen() -> None:
    pair = Pair(torch.ones(2), None)
    with pytest.raises(FrozenInstanceError):
        pair.first = torch.zeros(2)  # pyright: ignore[reportAttributeAccessIssue]


def test_tensors_are_found_and_mapped_wherever_they_are() -> None:
    tree = {"a": Pair(torch.ones(2), None), "b": [Pair(torch.ones(3), torch.ones(4))], "name": "kept"}
    assert [t.numel() for t in tensors(tree)] == [2, 3, 4]
    doubled = map_tensors(lambda t: 2 * t, tree)
    assert [t.sum().item() for t in tensors(doubled)] == [4, 6, 8]
    assert doubled["name"] == "kept"
    assert doubled["a"].second is None
    assert tree["a"].first.sum() == 2


def test_bytes_are_those_of_the_numbers_that_exist() -> None:
    assert state_bytes(Pair(torch.ones(3, 5), None)) == 60
    assert state_bytes(Pair(torch.ones(3, 5, dtype=torch.float64), torch.ones(7, dtype=torch.uint8))) == 127
    assert state_bytes(Pair(torch.ones(1, 5).expand(100, 5), None)) == 20
    assert state_bytes(Pair(torch.ones(6, 4)[:, :2], None)) == 48
    assert state_bytes(Pair(torch.ones(0, 5), None)) == 0


def test_torch_vectorises_over_a_state() -> None:
    pair = Pair(torch.rand(5, 3), torch.rand(5, 3))
    swapped = torch.vmap(lambda p: Pair(p.second.sum(), p.first))(pair)
    torch.testing.assert_close(swapped.first, pair.second.sum(-1))
    assert torch.equal(swapped.second, pair.first)


def test_what_is_shared_is_carried_along_and_never_added() -> None:
    noise = torch.eye(2)
    one = MatrixNormal.of(torch.zeros(1, 3, 2), torch.eye(3)[None], noise)
    more = one.observe(one.evidence(torch.ones(1, 4, 3), torch.ones(1, 4, 2)))
    assert more.noise_tril is noise
    assert more.merge(one, prior=one).retract(one).noise_tril is noise
