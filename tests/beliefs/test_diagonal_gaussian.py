"""The diagonal Gaussian against Bayes' rule on a grid, quadrature, and the sequential formulas."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from torch import Tensor

from sbmcl.beliefs import DiagonalGaussian


def values(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


PRIOR = DiagonalGaussian.of(values(0.3, -1.0), values(0.2, -0.5))
MEANS = torch.tensor([[[1.0, 0.2], [-0.4, 2.0], [0.7, 0.1]]], dtype=torch.float64)
LOG_PRECISIONS = torch.tensor([[[0.1, -1.0], [1.2, 0.3], [-0.6, 2.0]]], dtype=torch.float64)


def test_the_sequential_formulas() -> None:
    belief = PRIOR.observe(PRIOR.evidence(MEANS, LOG_PRECISIONS))
    mean, precision = PRIOR.mean[0], PRIOR.precision[0]
    for m, r in zip(MEANS[0], LOG_PRECISIONS[0], strict=True):
        mean = (precision * mean + r.exp() * m) / (precision + r.exp())
        precision = precision + r.exp()
    torch.testing.assert_close(belief.mean[0], mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(belief.precision[0], precision, rtol=1e-12, atol=0)


@pytest.mark.parametrize("d", [0, 1])
def test_bayes_rule_on_a_grid(d: int) -> None:
    z = np.linspace(-12, 12, 20_001)
    log_joint = stats.norm.logpdf(z, PRIOR.mean[0, d], PRIOR.precision[0, d] ** -0.5)
    for m, r in zip(MEANS[0, :, d], LOG_PRECISIONS[0, :, d], strict=True):
        log_joint += stats.norm.logpdf(m.item(), z, math.exp(-r.item() / 2))
    density = np.exp(log_joint) / np.trapezoid(np.exp(log_joint), z)
    belief = PRIOR.observe(PRIOR.evidence(MEANS, LOG_PRECISIONS))
    mean, deviation = belief.mean[0, d].item(), belief.precision[0, d].item() ** -0.5
    np.testing.assert_allclose(stats.norm.pdf(z, mean, deviation), density, atol=1e-9)
    assert abs(z[density.argmax()] - belief.mode()[0, d].item()) < 1.3e-3  # the grid is this fine


def test_kl_is_the_integral() -> None:
    one, other = PRIOR, DiagonalGaussian.of(values(-0.5, 0.4), values(1.3, -2.0))

    def integral(d: int) -> float:
        p = stats.norm(one.mean[0, d], one.precision[0, d] ** -0.5)
        q = stats.norm(other.mean[0, d], other.precision[0, d] ** -0.5)
        return quad(lambda z: p.pdf(z) * (p.logpdf(z) - q.logpdf(z)), -30, 30, epsabs=1e-12)[0]

    assert one.kl(other).item() == pytest.approx(integral(0) + integral(1), rel=1e-8)


@pytest.mark.parametrize(("precision", "nats"), [(10.0, 0.70), (100.0, 1.81), (0.01, 47.2)])
def test_kl_to_the_standard_normal_takes_a_precision_for_a_precision(precision: float, nats: float) -> None:
    log_precision = values(math.log(precision)).requires_grad_()
    kl = DiagonalGaussian.of(values(0.0), log_precision).kl(DiagonalGaussian.of(values(0.0), values(0.0)))
    assert kl.item() == pytest.approx(nats, abs=0.005 * max(1, nats))
    kl.backward()
    assert log_precision.grad is not None
    assert log_precision.grad.item() == pytest.approx((1 - 1 / precision) / 2)


def test_samples_follow_the_belief() -> None:
    draws = PRIOR.sample(20_000, rng=torch.Generator().manual_seed(0))[:, 0].numpy()
    for d in range(2):
        p = stats.norm(PRIOR.mean[0, d], PRIOR.precision[0, d] ** -0.5)
        assert stats.kstest(draws[:, d], p.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.03


def test_samples_are_reparameterised() -> None:
    """z = mu + Lambda^(-1/2) eps: d z / d mu = 1, and d z / d log Lambda = -(z - mu) / 2."""
    mean, log_precision = values(0.5).requires_grad_(), values(0.7).requires_grad_()
    z = DiagonalGaussian.of(mean, log_precision).sample(rng=torch.Generator().manual_seed(0))
    by_mean, by_precision = torch.autograd.grad(z, [mean, log_precision])
    assert by_mean.item() == pytest.approx(1)
    assert by_precision.item() == pytest.approx(-(z - mean).item() / 2)
