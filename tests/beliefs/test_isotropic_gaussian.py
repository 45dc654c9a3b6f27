"""Prototypes with uncertainty against scipy's Gaussians, torch's KL, and the sequential formulas."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize
from torch.distributions import MultivariateNormal, kl_divergence

from sbmcl.beliefs import IsotropicGaussian

RNG = np.random.default_rng(1)
DIM, SHOTS, NOISE = 3, (1, 2, 5), 0.6
LABEL = np.repeat(np.arange(len(SHOTS)), SHOTS)[RNG.permutation(sum(SHOTS))]
X = RNG.normal(1.0, 1.0, (sum(SHOTS), DIM))
QUERY = RNG.normal(0.0, 2.0, (4, DIM))
M0, T0 = np.array([0.4, -0.3, 0.1]), 1.7


def belief_of(mean: np.ndarray, variance_of_mean: float) -> IsotropicGaussian:
    noise = torch.tensor(NOISE, dtype=torch.float64)
    count = torch.full((1, 1, 1), NOISE / variance_of_mean, dtype=torch.float64)
    return IsotropicGaussian.of(torch.tensor(mean).view(1, 1, DIM), count, noise)


def learned(variance_of_mean: float = T0) -> IsotropicGaussian:
    prior = belief_of(M0, variance_of_mean)
    belief = prior.grow(len(SHOTS), prior)
    return belief.observe(belief.evidence(torch.tensor(X)[None], torch.tensor(LABEL)[None]))


def sequential(c: int) -> tuple[np.ndarray, float]:
    """1/t <- 1/t + 1/s2;  m <- m + (t/s2)(x - m) with the new t."""
    m, t = M0, T0
    for x in X[c == LABEL]:
        t = 1 / (1 / t + 1 / NOISE)
        m = m + t / NOISE * (x - m)
    return m, t


def test_the_sequential_formulas() -> None:
    belief = learned()
    for c in range(len(SHOTS)):
        m, t = sequential(c)
        np.testing.assert_allclose(belief.mean[0, c], m, rtol=1e-12)
        assert belief.precision[0, c].item() == pytest.approx(1 / t)


def test_the_flat_limit_is_the_running_mean() -> None:
    belief = learned(np.inf)
    for c, shots in enumerate(SHOTS):
        np.testing.assert_allclose(belief.mode()[0, c], X[c == LABEL].mean(0), rtol=1e-12)
        assert belief.precision[0, c].item() == pytest.approx(shots / NOISE)


def test_predictive_is_a_gaussian_with_the_uncertainty_of_the_mean() -> None:
    found = learned().predictive(torch.tensor(QUERY)[None])[0]
    for c in range(len(SHOTS)):
        m, t = sequential(c)
        np.testing.assert_allclose(found[:, c], stats.multivariate_normal(m, (NOISE + t) * np.eye(DIM)).logpdf(QUERY))


def test_plug_in_leaves_the_uncertainty_out() -> None:
    found = learned().plug_in(torch.tensor(QUERY)[None])[0]
    for c in range(len(SHOTS)):
        right = stats.multivariate_normal(sequential(c)[0], NOISE * np.eye(DIM)).logpdf(QUERY)
        np.testing.assert_allclose(found[:, c], right)


def test_scores_of_equal_shots_are_those_of_prototypical_networks() -> None:
    """-|x - mean|^2, where s2 (1 + 1/n) = 1/2."""
    n = 4
    prior = belief_of(M0, np.inf)
    prior = IsotropicGaussian(prior.count, prior.shift, torch.tensor(0.5 / (1 + 1 / n), dtype=torch.float64))
    x, label = torch.tensor(RNG.normal(size=(1, 2 * n, DIM))), torch.tensor([[0, 1] * n])
    belief = prior.grow(2, prior)
    belief = belief.observe(belief.evidence(x, label))
    query = torch.tensor(QUERY)[None]
    prototypes = torch.stack([x[label == c].mean(0) for c in range(2)])
    logits = -torch.cdist(query[0], prototypes).square()
    torch.testing.assert_close(belief.predictive(query)[0].log_softmax(-1), logits.log_softmax(-1))


def test_mode_is_the_highest_point_of_the_posterior() -> None:
    for c in range(len(SHOTS)):

        def minus_log_joint(mu: np.ndarray, c: int = c) -> float:
            likelihood = stats.norm.logpdf(X[c == LABEL], mu, np.sqrt(NOISE)).sum()
            return -likelihood - stats.norm.logpdf(mu, M0, np.sqrt(T0)).sum()

        np.testing.assert_allclose(learned().mode()[0, c], minimize(minus_log_joint, np.zeros(DIM)).x, atol=1e-5)


def test_kl_is_that_of_torch() -> None:
    other = belief_of(np.array([1.0, 0.0, -1.0]), 0.5)
    found = learned().kl(other.grow(len(SHOTS), other))[0]
    for c in range(len(SHOTS)):
        m, t = sequential(c)
        p = MultivariateNormal(torch.tensor(m), t * torch.eye(DIM, dtype=torch.float64))
        q = MultivariateNormal(other.mean[0, 0], 0.5 * torch.eye(DIM, dtype=torch.float64))
        assert found[c].item() == pytest.approx(kl_divergence(p, q).item())


def test_samples_follow_the_belief() -> None:
    draws = learned().sample(20_000, rng=torch.Generator().manual_seed(0))[:, 0].numpy()
    for c in range(len(SHOTS)):
        m, t = sequential(c)
        for d in range(DIM):
            assert stats.kstest(draws[:, c, d], stats.norm(m[d], np.sqrt(t)).cdf).pvalue > 1e-4
        np.testing.assert_allclose(np.cov(draws[:, c].T), t * np.eye(DIM), atol=0.05 * t)
