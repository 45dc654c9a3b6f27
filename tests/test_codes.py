"""Label codes: distinct, different from stream to stream, and scores that come back in the order of the labels."""

import pytest
import torch

from sbmcl.episode import Examples
from sbmcl.methods.codes import Codebook, labels

CPU = torch.device("cpu")


def test_codes_are_distinct_and_differ_between_episodes_and_draws() -> None:
    book, rng = Codebook(500), torch.Generator().manual_seed(0)
    first, second = (book.draw(3, rng=rng, device=CPU) for _ in range(2))
    assert all(sorted(row.tolist()) == list(range(500)) for row in first)
    assert len({tuple(row.tolist()) for row in (*first, *second)}) == 6


def test_every_code_is_as_likely_for_a_label_as_any_other() -> None:
    codes = Codebook(5).draw(20_000, rng=torch.Generator().manual_seed(0), device=CPU)
    for label in range(5):
        share = torch.bincount(codes[:, label], minlength=5) / len(codes)
        assert (share - 0.2).abs().max() < 0.015  # five standard deviations


def test_without_a_generator_labels_are_their_own_codes() -> None:
    book, label = Codebook(7), torch.tensor([[0, 3, 6], [6, 6, 1]])
    codes = book.draw(2, rng=None, device=CPU)
    assert torch.equal(book.encode(codes, label), label)
    scores = torch.randn(2, 4, 7)
    assert torch.equal(book.by_label(codes, scores), scores)


def test_the_score_of_a_code_becomes_the_score_of_its_label() -> None:
    book = Codebook(500)
    codes = book.draw(2, rng=torch.Generator().manual_seed(0), device=CPU)
    label = torch.stack([torch.randperm(500), torch.randperm(500)])
    certain = torch.nn.functional.one_hot(book.encode(codes, label), 500).float()
    assert torch.equal(book.by_label(codes, certain).argmax(-1), label)


def test_labels_the_vocabulary_has_no_code_for_are_refused() -> None:
    book = Codebook(4)
    codes = book.draw(1, rng=None, device=CPU)
    with pytest.raises(ValueError, match=r"label 4 needs a vocabulary of 5 codes, but this model was trained with 4"):
        book.encode(codes, torch.tensor([[0, 4]]))
    with pytest.raises(ValueError, match="count from 0"):
        book.encode(codes, torch.tensor([[0, -1]]))
    with pytest.raises(ValueError, match="at least 2"):
        Codebook(1)


def test_what_is_no_label_is_refused() -> None:
    task = torch.zeros(1, 2, dtype=torch.long)
    for y in (None, torch.zeros(1, 2), torch.zeros(1, 2, 3, dtype=torch.long)):
        with pytest.raises(ValueError, match="integer labels"):
            labels(Examples(torch.zeros(1, 2, 3), y, task))
