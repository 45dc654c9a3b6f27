"""The Normal-Gamma belief against scipy's densities, quadrature, and the sequential formulas."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize
from torch import Tensor

from sbmcl.beliefs import NormalGamma, normal_gamma

RNG = np.random.default_rng(0)
DIM, SHOTS = 3, (1, 2, 5)  # unequal on purpose: shape and count then differ by class
LABEL = np.repeat(np.arange(len(SHOTS)), SHOTS)[RNG.permutation(sum(SHOTS))]
X = RNG.normal(1.0, 2.0, (sum(SHOTS), DIM))
QUERY = RNG.normal(0.0, 3.0, (4, DIM))
PRIOR = {"m": np.array([0.3, -0.2, 1.0]), "k": 0.7, "a": 1.6, "b": np.array([0.9, 2.0, 1.3])}
FLAT = {**PRIOR, "k": 0.0}
priors = pytest.mark.parametrize("prior", [PRIOR, FLAT], ids=["informative", "flat"])


def belief_of(prior: dict) -> NormalGamma:
    def cell(value: float) -> Tensor:
        return torch.full((1, 1, 1), value, dtype=torch.float64)

    m, b = (torch.tensor(prior[name]).view(1, 1, DIM) for name in "mb")
    return NormalGamma.of(m, cell(prior["k"]), cell(prior["a"]), b)


def learned(prior: dict) -> NormalGamma:
    first = belief_of(prior)
    belief = first.grow(len(SHOTS), first)
    return belief.observe(belief.evidence(torch.tensor(X)[None], torch.tensor(LABEL)[None]))


def sequential(prior: dict, c: int) -> dict:
    """One example after another, by the textbook."""
    m, k, a, b = prior["m"], prior["k"], prior["a"], prior["b"]
    for x in X[c == LABEL]:
        b = b + k * (x - m) ** 2 / (2 * (k + 1))
        m, k, a = (k * m + x) / (k + 1), k + 1, a + 0.5
    return {"m": m, "k": k, "a": a, "b": b}


@priors
def test_the_sequential_formulas(prior: dict) -> None:
    belief = learned(prior)
    for c in range(len(SHOTS)):
        right = sequential(prior, c)
        np.testing.assert_allclose(belief.mean[0, c], right["m"], rtol=1e-12)
        np.testing.assert_allclose(belief.rate[0, c], right["b"], rtol=1e-12)
        assert belief.count[0, c].item() == pytest.approx(right["k"])
        assert belief.shape[0, c].item() == pytest.approx(right["a"])


@priors
def test_predictive_is_a_product_of_student_t(prior: dict) -> None:
    """With the half of the log-determinant and the gamma functions, which unequal shots do not cancel."""
    found = learned(prior).predictive(torch.tensor(QUERY)[None])[0]
    for c in range(len(SHOTS)):
        p = sequential(prior, c)
        t = stats.t(2 * p["a"], p["m"], np.sqrt(p["b"] * (p["k"] + 1) / (p["a"] * p["k"])))
        np.testing.assert_allclose(found[:, c], t.logpdf(QUERY).sum(-1), rtol=1e-11)


@pytest.mark.parametrize("at_once", [1, 2 * 3 * DIM])
def test_how_much_is_worked_out_together_changes_nothing(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    belief, queries = learned(PRIOR), torch.tensor(np.concatenate([QUERY, X]))[None]
    whole = belief.predictive(queries)
    monkeypatch.setattr(normal_gamma, "AT_ONCE", at_once)
    torch.testing.assert_close(belief.predictive(queries), whole, rtol=1e-13, atol=0)
    assert belief.predictive(queries[:, :0]).shape == (1, 0, len(SHOTS))


def test_predictive_integrates_the_parameters_out() -> None:
    """p(x) = int Gamma(lam) N(x | m, (1 + 1/k) / lam) d lam in every dimension, by quadrature."""
    found = learned(PRIOR).predictive(torch.tensor(QUERY)[None])[0]
    for c in range(len(SHOTS)):
        p = sequential(PRIOR, c)

        def of(x: float, d: int, p: dict = p) -> float:
            def joint(lam: float) -> float:
                scale = math.sqrt((1 + 1 / p["k"]) / lam)
                return stats.gamma.pdf(lam, p["a"], scale=1 / p["b"][d]) * stats.norm.pdf(x, p["m"][d], scale)

            return quad(joint, 0, 60, epsabs=1e-13, limit=200)[0]

        for i in range(2):
            assert found[i, c].item() == pytest.approx(sum(math.log(of(QUERY[i, d], d)) for d in range(DIM)), rel=1e-7)


@priors
@pytest.mark.parametrize("how", ["predictive", "plug_in"])
def test_densities_integrate_to_one(prior: dict, how: str) -> None:
    belief = learned(prior)
    narrow = NormalGamma(belief.count, belief.shift[..., :1], belief.shape, belief.energy[..., :1])
    x = torch.sinh(torch.linspace(-13, 13, 200_001, dtype=torch.float64))  # far tails, closely spaced in the middle
    density = getattr(narrow, how)(x.view(1, -1, 1))[0].exp()
    np.testing.assert_allclose(torch.trapezoid(density, x, dim=0), 1, atol=2e-3 if how == "predictive" else 1e-9)


@priors
def test_plug_in_is_a_gaussian_at_the_joint_mode(prior: dict) -> None:
    found = learned(prior).plug_in(torch.tensor(QUERY)[None])[0]
    for c in range(len(SHOTS)):
        p = sequential(prior, c)
        deviation = np.sqrt(p["b"] / (p["a"] - 0.5))
        np.testing.assert_allclose(found[:, c], stats.norm.logpdf(QUERY, p["m"], deviation).sum(-1), rtol=1e-10)


def test_mode_is_the_highest_point_of_the_density() -> None:
    belief = learned(PRIOR)
    mean, precision = belief.mode()
    for c in range(len(SHOTS)):
        p = sequential(PRIOR, c)

        def minus_log_density(z: np.ndarray, d: int, p: dict = p) -> float:
            mu, lam = z[0], math.exp(z[1])
            of_mean = stats.norm.logpdf(mu, p["m"][d], 1 / math.sqrt(p["k"] * lam))
            return -of_mean - stats.gamma.logpdf(lam, p["a"], scale=1 / p["b"][d])

        for d in range(DIM):
            best = minimize(minus_log_density, [0.0, 0.0], (d,), "Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
            assert mean[0, c, d].item() == pytest.approx(best.x[0], abs=1e-5)
            assert precision[0, c, d].item() == pytest.approx(math.exp(best.x[1]), rel=1e-5)


def test_kl_is_the_integral() -> None:
    """Over lam by quadrature; over mu by Gauss-Hermite, which is exact for a quadratic."""
    one, other = learned(PRIOR), belief_of({"m": np.zeros(DIM), "k": 1.4, "a": 2.3, "b": np.array([0.5, 1.0, 3.0])})
    q = {"m": np.zeros(DIM), "k": 1.4, "a": 2.3, "b": np.array([0.5, 1.0, 3.0])}
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    weights = weights / weights.sum()
    found = one.kl(other.grow(len(SHOTS), other))[0]
    for c in range(len(SHOTS)):
        p = sequential(PRIOR, c)

        def integrand(lam: float, d: int, p: dict = p) -> float:
            mu = p["m"][d] + nodes / math.sqrt(p["k"] * lam)
            difference = stats.norm.logpdf(mu, p["m"][d], (p["k"] * lam) ** -0.5)
            difference = difference - stats.norm.logpdf(mu, q["m"][d], (q["k"] * lam) ** -0.5)
            gammas = [stats.gamma(s["a"], scale=1 / s["b"][d]) for s in (p, q)]
            return gammas[0].pdf(lam) * ((weights * difference).sum() + gammas[0].logpdf(lam) - gammas[1].logpdf(lam))

        right = sum(quad(integrand, 0, 40, (d,), epsabs=1e-9, limit=200)[0] for d in range(DIM))
        assert found[c].item() == pytest.approx(right, rel=1e-6)


def test_kl_from_a_flat_prior_is_infinite() -> None:
    flat = belief_of(FLAT)
    assert learned(PRIOR).kl(flat.grow(len(SHOTS), flat)).isposinf().all()


@priors
def test_samples_follow_the_belief(prior: dict) -> None:
    belief = learned(prior)
    mu, lam = (t[:, 0].numpy() for t in belief.sample(10_000, rng=torch.Generator().manual_seed(3)))
    for c in range(len(SHOTS)):
        p = sequential(prior, c)
        for d in range(DIM):
            assert stats.kstest(lam[:, c, d], stats.gamma(p["a"], scale=1 / p["b"][d]).cdf).pvalue > 1e-4
            standard = (mu[:, c, d] - p["m"][d]) * np.sqrt(p["k"] * lam[:, c, d])
            assert stats.kstest(standard, stats.norm.cdf).pvalue > 1e-4
            assert abs(np.corrcoef(standard, lam[:, c, d])[0, 1]) < 0.04


def test_averaging_over_samples_is_the_predictive() -> None:
    belief, query = learned(PRIOR), torch.tensor(QUERY)
    mu, lam = (t[:, 0, :, None] for t in belief.sample(40_000, rng=torch.Generator().manual_seed(0)))
    density = 0.5 * (lam / (2 * math.pi)).log() - 0.5 * lam * (query - mu).square()
    average = density.logsumexp(0) - math.log(40_000)  # every dimension by itself
    np.testing.assert_allclose(average.sum(-1).T, belief.predictive(query[None])[0], atol=0.15)


def test_samples_are_differentiable_in_all_natural_parameters() -> None:
    prior = belief_of(PRIOR)
    fields = [t.clone().requires_grad_() for t in vars(prior).values()]
    sampled = NormalGamma(*fields).sample(64, rng=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad(sum(t.square().mean() for t in sampled), fields)
    assert all(g.isfinite().all() and g.abs().sum() > 0 for g in gradients)
