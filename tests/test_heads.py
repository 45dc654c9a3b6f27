"""Losses and scores against the same thing computed by hand or by scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from sbmcl.beliefs import LinearPredictive
from sbmcl.heads import AngleHead, ClassHead, VectorHead
from sbmcl.heads.classes import auroc, expected_calibration_error


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_classification_scores() -> None:
    logits = torch.randn(2, 50, 4, generator=rng(), dtype=torch.float64)
    y = torch.randint(4, (2, 50), generator=rng(1))
    scores = ClassHead().scores(logits, y)
    p = logits.softmax(-1).flatten(0, 1).numpy()
    right = log_loss(y.flatten(), p, labels=range(4))
    assert ClassHead().loss(logits, y).item() == pytest.approx(right)
    assert scores["nll"].mean().item() == pytest.approx(right)
    assert scores["error"].mean().item() == pytest.approx((p.argmax(-1) != y.flatten().numpy()).mean())
    np.testing.assert_allclose(scores["confidence"].flatten(), p.max(-1))


def test_scores_of_classes_without_a_density() -> None:
    """A class never seen under a flat prior scores minus infinity: it is never answered, and no number breaks."""
    scores = ClassHead().scores(torch.tensor([[[0.0, -math.inf, math.log(3)]]]), torch.tensor([[2]]))
    assert scores["nll"].item() == pytest.approx(math.log(4 / 3))
    assert scores["confidence"].item() == pytest.approx(0.75)


def test_calibration_error_by_hand() -> None:
    confidence = torch.tensor([0.55, 0.58, 0.95, 0.99, 1.0, 0.2])
    correct = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    # of ten bins: (0.5, 0.6] holds two, (0.9, 1] three and (0.1, 0.2] one
    by_hand = (abs(1 - 0.55 - 0.58) + abs(2 - 0.95 - 0.99 - 1.0) + abs(0 - 0.2)) / 6
    assert expected_calibration_error(confidence, correct, bins=10) == pytest.approx(by_hand)


def test_calibration_error_by_a_slow_loop() -> None:
    confidence, correct = torch.rand(500, generator=rng()), (torch.rand(500, generator=rng(1)) < 0.6).float()
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            total += inside.sum().item() / 500 * abs((correct[inside].mean() - confidence[inside].mean()).item())
    assert expected_calibration_error(confidence, correct) == pytest.approx(total, abs=1e-6)


def test_a_calibrated_predictor_has_no_calibration_error() -> None:
    confidence = torch.rand(200_000, generator=rng())
    correct = (torch.rand(200_000, generator=rng(1)) < confidence).float()
    assert expected_calibration_error(confidence, correct) < 0.006
    assert expected_calibration_error(torch.ones(10), torch.zeros(10)) == 1


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_is_that_of_scikit_learn(ties: bool) -> None:
    known, novel = torch.randn(300, generator=rng()), 0.7 + torch.randn(200, generator=rng(1))
    if ties:
        known, novel = known.round(), novel.round()
    truth = np.r_[np.zeros(300), np.ones(200)]
    assert auroc(known, novel) == pytest.approx(roc_auc_score(truth, torch.cat([known, novel])))


def test_vector_scores_of_points_and_of_distributions() -> None:
    y, mean = (torch.randn(2, 5, 3, generator=rng(i), dtype=torch.float64) for i in range(2))
    head = VectorHead()
    assert set(head.scores(mean, y)) == {"mse"}
    assert head.loss(mean, y).item() == pytest.approx(((mean - y) ** 2).mean().item())
    noise = torch.diag(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    predictive = LinearPredictive(mean, torch.full((2, 5), 1.5, dtype=torch.float64), noise)
    scores = head.scores(predictive, y)
    torch.testing.assert_close(scores["mse"], ((mean - y) ** 2).mean(-1))
    deviation = 1.5**0.5 * torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    nll = -torch.distributions.Normal(mean, deviation).log_prob(y).mean(-1)  # per value
    torch.testing.assert_close(scores["nll"], nll)
    assert head.loss(predictive, y).item() == pytest.approx(scores["mse"].mean().item())


def test_picture_scores_average_over_all_pixels() -> None:
    y, x = torch.rand(2, 3, 1, 4, 8, generator=rng()), torch.rand(2, 3, 1, 4, 8, generator=rng(1))
    torch.testing.assert_close(VectorHead().scores(x, y)["mse"], ((x - y) ** 2).mean((-3, -2, -1)))


def test_angle_score_is_one_minus_the_cosine_of_the_error() -> None:
    angle, error, length = torch.tensor([[0.3, 2.0, -1.0]]), torch.tensor([[0.5, math.pi, 0.0]]), 3.0
    y = torch.stack([angle.cos(), angle.sin()], -1)
    answer = length * torch.stack([(angle + error).cos(), (angle + error).sin()], -1)
    torch.testing.assert_close(AngleHead().scores(answer, y)["angle"], 1 - error.cos())
    assert AngleHead().loss(answer, y).item() == pytest.approx((1 - error.cos()).mean().item())


def test_no_answer_scores_one_and_short_answers_little_better() -> None:
    y = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    scores = AngleHead().scores(torch.tensor([[[0.0, 0.0], [0.05, 0.0]]]), y)["angle"]
    torch.testing.assert_close(scores, torch.tensor([[1.0, 0.5]]))


def test_the_gradient_of_an_angle_is_a_number_even_at_no_answer() -> None:
    answer = torch.zeros(1, 1, 2, requires_grad=True)
    AngleHead().loss(answer, torch.tensor([[[1.0, 0.0]]])).backward()
    assert answer.grad is not None
    assert answer.grad.isfinite().all()
