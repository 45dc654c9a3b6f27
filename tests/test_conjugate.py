"""GeMCL, PN and ALPaCA against their definitions, written slowly: class by class and example by example, with scipy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax
from torch import Tensor, nn

from sbmcl.episode import Episode, Examples
from sbmcl.methods.conjugate import PN, ALPaCA, ClassConjugate, GeMCL
from sbmcl.nets.conv import ConvEncoder
from sbmcl.nets.mlp import MLP

LABELS = [2, 0, 1, 0, 0, 2, 1, 0, 0]  # five, two and two shots, in no order
ANSWERS = [0, 1, 2, 2, 0]
INPUTS, DIM, OUT = 6, 4, 3


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=rng(seed), dtype=torch.float64)


def examples(y: Tensor, seed: int) -> Examples:
    return Examples(normal(*y.shape[:2], INPUTS, seed=seed), y, torch.zeros(y.shape[:2], dtype=torch.long))


def classification() -> Episode:
    return Episode(examples(torch.tensor([LABELS]), 1), examples(torch.tensor([ANSWERS]), 2))


def regression(n: int = 3) -> Episode:
    return Episode(examples(normal(1, n, OUT, seed=5), 3), examples(normal(1, 5, OUT, seed=6), 4))


def encoder(out: int = DIM) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, out), nn.Tanh())


A0, B0, K0, S2 = 1.2, 0.3, 0.8, 0.2


def gemcl(**options: float) -> GeMCL:
    method = GeMCL(encoder(), DIM, shape=A0, rate=B0, **options).double()  # pyright: ignore[reportArgumentType]
    with torch.no_grad():  # a logarithm in float64
        method.log_shape.fill_(np.log(A0))
        method.log_rate.fill_(np.log(B0))
        if method.log_count is not None:
            method.log_count.fill_(np.log(K0))
    return method


def pn(**options: float) -> PN:
    method = PN(encoder(), DIM, variance=S2, **options).double()  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        method.log_variance.fill_(np.log(S2))
        if method.log_precision is not None:
            method.log_precision.fill_(np.log(options["precision"]))
    return method


def alpaca(loss: str = "mse") -> ALPaCA:
    method = ALPaCA(encoder(), DIM, OUT, loss=loss).double()  # pyright: ignore[reportArgumentType]
    with torch.no_grad():  # away from the symmetric start, where mistakes could cancel
        for i, parameter in enumerate((method.prior_mean, method.prior_factor, method.noise_factor)):
            parameter.add_(0.3 * normal(*parameter.shape, seed=10 + i))
    return method


def codes(method: GeMCL | PN | ALPaCA, x: Examples) -> np.ndarray:
    with torch.no_grad():
        return method.encoder(x.x[0]).numpy()


def student_scores(known: np.ndarray, query: np.ndarray, k0: float) -> np.ndarray:
    """log p(query | class), a column a class, under the prior NG(0, k0, A0, B0)."""
    columns = []
    for c in range(3):
        x = known[c == np.array(LABELS)]
        n, mean = len(x), x.mean(0)
        k, m, a = k0 + n, n * mean / (k0 + n), A0 + n / 2
        b = B0 + 0.5 * ((x - mean) ** 2).sum(0) + k0 * n * mean**2 / (2 * k)
        columns.append(stats.t(2 * a, m, np.sqrt(b * (k + 1) / (a * k))).logpdf(query).sum(-1))
    return np.stack(columns, -1)


def mode_scores(known: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The same with mean and variance at their joint mode, for k0 = 0."""
    columns = []
    for c in range(3):
        x = known[c == np.array(LABELS)]
        variance = (B0 + 0.5 * ((x - x.mean(0)) ** 2).sum(0)) / (A0 + len(x) / 2 - 0.5)
        columns.append(stats.norm(x.mean(0), np.sqrt(variance)).logpdf(query).sum(-1))
    return np.stack(columns, -1)


def gaussian_scores(known: np.ndarray, query: np.ndarray, precision: float) -> np.ndarray:
    """log p(query | class) under N(mu_c, S2 I) and mu_c ~ N(0, I / precision)."""
    columns = []
    for c in range(3):
        x = known[c == np.array(LABELS)]
        t = 1 / (precision + len(x) / S2)
        m = t * x.sum(0) / S2
        columns.append(stats.norm(m, np.sqrt(S2 + t)).logpdf(query).sum(-1))
    return np.stack(columns, -1)


@torch.no_grad()
def found(method: ClassConjugate, *, at_mode: bool = False) -> np.ndarray:
    episode = classification()
    state = method.learn(method.init(1), episode.stream)
    return method.predict(state, episode.query.x, at_mode=at_mode)[0].numpy()


@pytest.mark.parametrize("k0", [0.0, K0])
def test_gemcl_is_bayes_rule_over_student_t(k0: float) -> None:
    method, episode = gemcl(count=k0), classification()
    right = student_scores(codes(method, episode.stream), codes(method, episode.query), k0)
    np.testing.assert_allclose(found(method), right, rtol=1e-9)
    nll = -log_softmax(right, -1)[np.arange(5), ANSWERS].mean()
    losses = method.meta_loss(episode)
    assert losses.total.item() == pytest.approx(nll)
    assert losses.parts["error"].item() == pytest.approx((right.argmax(-1) != ANSWERS).mean())


def test_gemcl_at_its_mode_is_bayes_rule_over_gaussians() -> None:
    method, episode = gemcl(), classification()
    right = mode_scores(codes(method, episode.stream), codes(method, episode.query))
    np.testing.assert_allclose(found(method, at_mode=True), right, rtol=1e-9)


@pytest.mark.parametrize("precision", [0.0, 1.7])
def test_pn_is_bayes_rule_over_uncertain_prototypes(precision: float) -> None:
    method, episode = pn(precision=precision), classification()
    right = gaussian_scores(codes(method, episode.stream), codes(method, episode.query), precision)
    np.testing.assert_allclose(found(method), right, rtol=1e-9)
    assert method.meta_loss(episode).total.item() == pytest.approx(-log_softmax(right, -1)[range(5), ANSWERS].mean())


@pytest.mark.parametrize("build", [gemcl, pn])
def test_a_temperature_scales_the_log_scores(build: Callable[..., ClassConjugate]) -> None:
    plain, tempered = build(), build(tempered=True)
    np.testing.assert_allclose(found(tempered), found(plain))
    assert tempered.log_scale is not None
    with torch.no_grad():
        tempered.log_scale.fill_(-0.7)
    np.testing.assert_allclose(found(tempered), np.exp(-0.7) * found(plain))


def test_novelty_is_the_odds_of_a_new_class() -> None:
    method, episode = gemcl(count=K0), classification()
    query = codes(method, episode.query)
    known = student_scores(codes(method, episode.stream), query, K0)
    fresh = stats.t(2 * A0, 0, np.sqrt(B0 * (1 + 1 / K0) / A0)).logpdf(query).sum(-1)
    right = fresh - np.logaddexp.reduce(known, -1)
    with torch.no_grad():
        novelty = method.novelty(method.learn(method.init(1), episode.stream), episode.query.x)
    np.testing.assert_allclose(novelty[0], right, rtol=1e-9)


@pytest.mark.parametrize("build", [gemcl, pn])
def test_far_queries_are_novel_under_a_flat_prior_too(build: Callable[..., ClassConjugate]) -> None:
    method, episode = build(), classification()
    method.encoder = nn.Sequential(nn.Linear(INPUTS, DIM)).double()
    state = method.learn(method.init(1), episode.stream)
    near = method.novelty(state, episode.stream.x)
    far = method.novelty(state, 100 * episode.stream.x)
    assert near.max() < far.min()


def test_classes_arrive_in_any_order() -> None:
    """Label 2 first: there is room for 0 and 1, which stay the prior until they are seen."""
    method, episode = gemcl(count=K0), classification()
    with torch.no_grad():
        state = method.learn(method.init(1), episode.stream[:1])
        assert state.classes == 3
        scores = method.predict(state, episode.query.x)
        prior = method.prior(1).predictive(method.run(method.encoder, episode.query.x))
    torch.testing.assert_close(scores[..., :2], prior.expand(-1, -1, 2))


def alpaca_by_hand(method: ALPaCA, episode: Episode) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and spread of the predictive and the noise, through the d x d posterior of the textbook."""

    def triangular(factor: Tensor) -> np.ndarray:
        raw = factor.detach().numpy()
        return np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))

    F, Q = codes(method, episode.stream), codes(method, episode.query)
    K, R = triangular(method.prior_factor), triangular(method.noise_factor)
    L0, M0 = np.linalg.inv(K @ K.T), method.prior_mean.detach().numpy()
    L = L0 + F.T @ F
    M = np.linalg.solve(L, L0 @ M0 + F.T @ episode.stream.targets[0].numpy())
    return Q @ M, 1 + np.einsum("nd,nd->n", Q, np.linalg.solve(L, Q.T).T), R @ R.T


def nll_by_hand(mean: np.ndarray, spread: np.ndarray, noise: np.ndarray, y: np.ndarray) -> float:
    terms = [stats.multivariate_normal(m, g * noise).logpdf(t) for m, g, t in zip(mean, spread, y, strict=True)]
    return -float(np.mean(terms)) / OUT


@pytest.mark.parametrize("n", [2, DIM, 9], ids=["short", "equal", "long"])
def test_alpaca_is_bayesian_linear_regression(n: int) -> None:
    method, episode = alpaca(), regression(n)
    mean, spread, noise = alpaca_by_hand(method, episode)
    y = episode.query.targets[0].numpy()
    mse, nll = ((mean - y) ** 2).mean(), nll_by_hand(mean, spread, noise, y)
    with torch.no_grad():
        predictive = method.predict(method.learn(method.init(1), episode.stream), episode.query.x)
        losses, exact = method.meta_loss(episode), alpaca("nll").meta_loss(episode)
    np.testing.assert_allclose(predictive.mean[0], mean, rtol=1e-8)
    np.testing.assert_allclose(predictive.spread[0], spread, rtol=1e-8)
    assert losses.parts["mse"].item() == pytest.approx(mse)
    assert losses.total.item() == pytest.approx(mse + nll)
    assert exact.total.item() == pytest.approx(nll)


@pytest.mark.parametrize("n", [2, 9], ids=["short", "long"])
def test_alpaca_is_trained_through_either_route_alike(n: int) -> None:
    """The gradients of training (n x n or d x d) are those of learning a stream and predicting."""
    episode = regression(n)

    def gradients(losses: Callable[[ALPaCA], Tensor]) -> dict[str, Tensor]:
        method = alpaca("nll")
        losses(method).backward()
        return {name: p.grad for name, p in method.named_parameters() if p.grad is not None}

    def streamed(method: ALPaCA) -> Tensor:
        predictive = method.predict(method.learn(method.init(1), episode.stream), episode.query.x)
        return -predictive.log_prob(episode.query.targets).mean() / OUT

    torch.testing.assert_close(
        gradients(lambda m: m.meta_loss(episode).total), gradients(streamed), rtol=1e-7, atol=1e-9
    )


def test_squared_error_trains_the_features_and_likelihood_only_the_noise() -> None:
    episode, method = regression(), alpaca("mse")
    method.meta_loss(episode).total.backward()
    plain = alpaca("mse")
    predictive = plain.predict(plain.learn(plain.init(1), episode.stream), episode.query.x)
    plain.head.loss(predictive, episode.query.targets).backward()
    for (name, mine), theirs in zip(method.named_parameters(), plain.parameters(), strict=True):
        if name == "noise_factor":
            assert theirs.grad is None
            assert mine.grad is not None
            assert mine.grad.tril().abs().sum() > 0
        else:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-7, atol=1e-10)


def test_the_noise_learns_the_covariance_of_the_residuals() -> None:
    """The likelihood is greatest at Sig = mean of e e^T / g; its gradient vanishes there and nowhere near."""
    method = alpaca()
    episode = Episode(regression(3).stream, examples(normal(1, 40, OUT, seed=6), 4))
    mean, spread, _ = alpaca_by_hand(method, episode)
    residual = (episode.query.targets[0].numpy() - mean) / np.sqrt(spread)[:, None]
    best = torch.linalg.cholesky(torch.tensor(residual.T @ residual / 40))
    with torch.no_grad():
        method.noise_factor.copy_(best.tril(-1) + torch.diag(best.diagonal().log()))
    method.meta_loss(episode).total.backward()
    assert method.noise_factor.grad is not None
    assert method.noise_factor.grad.abs().max() < 1e-9


def test_alpaca_at_its_mode_keeps_the_mean_and_drops_the_spread() -> None:
    method, episode = alpaca(), regression()
    with torch.no_grad():
        state = method.learn(method.init(1), episode.stream)
        full, mode = (method.predict(state, episode.query.x, at_mode=at_mode) for at_mode in (False, True))
    assert torch.equal(full.mean, mode.mean)
    assert (mode.epistemic == 0).all()
    assert (full.epistemic > 0).all()
    assert torch.equal(full.aleatoric, mode.aleatoric)


def test_the_prior_of_alpaca_is_the_belief_before_the_first_example() -> None:
    method = alpaca()
    torch.testing.assert_close(method.init(2).mode(), method.prior_mean.expand(2, -1, -1))


def test_beliefs_stay_float32_when_networks_run_in_bfloat16() -> None:
    torch.manual_seed(0)
    method = GeMCL(ConvEncoder(1, 16, 16, DIM), DIM).eval()
    x = torch.randn(1, 4, 1, 16, 16)
    stream = Examples(x, torch.tensor([[0, 0, 1, 1]]), torch.zeros(1, 4, dtype=torch.long))
    with torch.no_grad():
        exact = method.learn(method.init(1), stream)
        method.bf16 = True
        rough = method.learn(method.init(1), stream)
        scores = method.predict(rough, x)
    assert all(t.dtype == torch.float32 for t in (*vars(rough).values(), scores))
    assert not torch.equal(exact.shift, rough.shift)
    torch.testing.assert_close(exact.mean, rough.mean, rtol=0.1, atol=0.02)
    assert torch.equal(rough.count.flatten(), torch.tensor([2.0, 2.0]))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "no labels"),
        (torch.zeros(1, 2), "float32 targets"),
        (torch.zeros(1, 2, 3), "float32 targets"),
        (torch.tensor([[0, -1]]), "count from 0, but got -1"),
    ],
)
def test_classifiers_say_which_labels_they_take(y: Tensor | None, message: str) -> None:
    method = gemcl()
    with pytest.raises(ValueError, match=message):
        method.learn(method.init(1), Examples(normal(1, 2, INPUTS), y, torch.zeros(1, 2, dtype=torch.long)))


@pytest.mark.parametrize("y", [None, torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2)])
def test_regression_says_which_targets_it_takes(y: Tensor | None) -> None:
    method = alpaca()
    with pytest.raises(ValueError, match="learns from float vectors"):
        method.learn(method.init(1), Examples(normal(1, 2, INPUTS), y, torch.zeros(1, 2, dtype=torch.long)))


def test_batch_norm_keeps_to_its_running_averages_while_a_stream_is_learned() -> None:
    """Otherwise what a chunk holds would change what is learned from it."""
    torch.manual_seed(0)
    method = GeMCL(MLP(INPUTS, DIM, hidden=8), DIM).double()
    method.train().meta_loss(classification())
    method.eval()
    stream = classification().stream
    with torch.no_grad():
        whole = method.learn(method.init(1), stream)
        halves = method.learn(method.learn(method.init(1), stream[:4]), stream[4:])
    torch.testing.assert_close(vars(whole), vars(halves), rtol=1e-12, atol=1e-12)
