"""Bayesian linear regression against scikit-learn, scipy's joint Gaussian, torch's KL, and the rank-one formulas."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import BayesianRidge
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from sbmcl.beliefs import MatrixNormal, predict_from

RNG = np.random.default_rng(2)
N, D, K = 6, 4, 2
F, Y, QUERY = RNG.normal(size=(N, D)), RNG.normal(size=(N, K)), RNG.normal(size=(3, D))
FACTOR = np.tril(RNG.normal(size=(D, D)), -1) + np.diag([0.5, 1.0, 1.5, 0.8])  # of the prior covariance L0^-1
M0, L0 = RNG.normal(size=(D, K)), np.linalg.inv(FACTOR @ FACTOR.T)
NOISE_TRIL = np.array([[0.6, 0.0], [0.3, 0.4]])
NOISE = NOISE_TRIL @ NOISE_TRIL.T


def prior() -> MatrixNormal:
    return MatrixNormal.of(torch.tensor(M0)[None], torch.tensor(L0)[None], torch.tensor(NOISE_TRIL))


def learned(n: int = N) -> MatrixNormal:
    start = prior()
    return start.observe(start.evidence(torch.tensor(F[:n])[None], torch.tensor(Y[:n])[None]))


def test_one_example_after_another_with_the_covariance_updated_by_rank_one() -> None:
    """P <- P - P f f^T P / (1 + f^T P f), and the gain of a Kalman filter."""
    P, M = np.linalg.inv(L0), M0
    for f, y in zip(F, Y, strict=True):
        gain = P @ f / (1 + f @ P @ f)
        M = M + np.outer(gain, y - M.T @ f)
        P = P - np.outer(gain, f @ P)
    np.testing.assert_allclose(learned().mean[0], M, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(learned().precision[0]), P, rtol=1e-8, atol=1e-12)


def test_mode_solves_the_regularised_least_squares() -> None:
    """|C0^T (W - M0)|^2 + |Y - F W|^2 is least there, whatever the noise."""
    stacked = np.vstack([np.linalg.cholesky(L0).T, F])
    targets = np.vstack([np.linalg.cholesky(L0).T @ M0, Y])
    np.testing.assert_allclose(learned().mode()[0], np.linalg.lstsq(stacked, targets)[0], rtol=1e-9)


def test_scikit_learn_agrees() -> None:
    x, y = RNG.normal(size=(40, D)), RNG.normal(size=40)
    ridge = BayesianRidge(fit_intercept=False, compute_score=False).fit(x, y)
    precision = ridge.lambda_ / ridge.alpha_ * torch.eye(D, dtype=torch.float64)[None]
    noise = torch.tensor([[ridge.alpha_**-0.5]], dtype=torch.float64)
    start = MatrixNormal.of(torch.zeros(1, D, 1, dtype=torch.float64), precision, noise)
    belief = start.observe(start.evidence(torch.tensor(x)[None], torch.tensor(y)[None, :, None]))
    mean, deviation = ridge.predict(QUERY, return_std=True)
    found = belief.predictive(torch.tensor(QUERY)[None])
    np.testing.assert_allclose(found.mean[0, :, 0], mean, rtol=1e-8)
    np.testing.assert_allclose((found.aleatoric + found.epistemic)[0, :, 0], deviation**2, rtol=1e-8)
    np.testing.assert_allclose(np.linalg.inv(belief.precision[0]) / ridge.alpha_, ridge.sigma_, rtol=1e-7)


def test_predictive_is_the_gaussian_of_the_definition() -> None:
    found = learned().predictive(torch.tensor(QUERY)[None])
    L = L0 + F.T @ F
    M = np.linalg.solve(L, L0 @ M0 + F.T @ Y)
    answers = RNG.normal(size=(3, K))
    log_prob = found.log_prob(torch.tensor(answers)[None])[0]
    for i, f in enumerate(QUERY):
        covariance = (1 + f @ np.linalg.solve(L, f)) * NOISE
        np.testing.assert_allclose(log_prob[i], stats.multivariate_normal(M.T @ f, covariance).logpdf(answers[i]))
        np.testing.assert_allclose((found.aleatoric + found.epistemic)[0, i], np.diag(covariance))
    np.testing.assert_allclose(found.aleatoric[0, 0], np.diag(NOISE))


def test_the_predictives_of_a_stream_multiply_to_its_evidence() -> None:
    """prod_t p(y_t | f_t, what came before) = N(vec Y | vec F M0, (I + F L0^-1 F^T) x Sig), the joint of all of it."""
    one_by_one = 0.0
    for t in range(N):
        predictive = learned(t).predictive(torch.tensor(F[t])[None, None])
        one_by_one += predictive.log_prob(torch.tensor(Y[t])[None, None]).item()
    covariance = np.kron(np.eye(N) + F @ np.linalg.solve(L0, F.T), NOISE)
    at_once = stats.multivariate_normal((F @ M0).ravel(), covariance).logpdf(Y.ravel())
    assert one_by_one == pytest.approx(at_once, rel=1e-10)


def full(belief: MatrixNormal) -> MultivariateNormal:
    """The belief as a Gaussian over all weights, row by row."""
    covariance = np.kron(np.linalg.inv(belief.precision[0]), NOISE)
    return MultivariateNormal(belief.mean[0].flatten(), torch.tensor((covariance + covariance.T) / 2))


def test_kl_is_that_of_torch() -> None:
    for one, other in ((learned(), prior()), (prior(), learned())):
        assert one.kl(other).item() == pytest.approx(kl_divergence(full(one), full(other)).item(), rel=1e-8)


def test_samples_follow_the_belief() -> None:
    belief = learned(2)
    draws = belief.sample(40_000, rng=torch.Generator().manual_seed(0))[:, 0].flatten(1)
    p = full(belief)
    scale = p.covariance_matrix.abs().max().item()
    np.testing.assert_allclose(draws.mean(0), p.mean, atol=0.02 * scale**0.5)
    np.testing.assert_allclose(np.cov(draws.T.numpy()), p.covariance_matrix, atol=0.03 * scale)
    whitened = torch.linalg.solve_triangular(p.scale_tril, (draws - p.mean).mT, upper=False)
    assert all(stats.kstest(w.numpy(), stats.norm.cdf).pvalue > 1e-4 for w in whitened)


@pytest.mark.parametrize("n", [0, 1, D, N])
def test_the_short_route_is_the_belief(n: int) -> None:
    def tensor(array: np.ndarray) -> Tensor:
        return torch.tensor(array)

    short = predict_from(
        tensor(F[:n])[None],
        tensor(Y[:n])[None],
        tensor(QUERY)[None],
        prior_mean=tensor(M0),
        prior_factor=tensor(FACTOR),
        noise_tril=tensor(NOISE_TRIL),
    )
    long = learned(n).predictive(tensor(QUERY)[None])
    torch.testing.assert_close(short.mean, long.mean, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(short.spread, long.spread, rtol=1e-9, atol=1e-12)


def test_what_is_left_to_learn_vanishes_and_the_noise_stays() -> None:
    f, y = torch.tensor(RNG.normal(size=(1, 20_000, D))), torch.tensor(RNG.normal(size=(1, 20_000, K)))
    belief = prior().observe(prior().evidence(f, y))
    predictive = belief.predictive(torch.tensor(QUERY)[None])
    assert (predictive.epistemic < 1e-3 * predictive.aleatoric).all()
