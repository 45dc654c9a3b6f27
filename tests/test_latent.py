"""The generic latent method against linear-Gaussian models, where everything is known in closed form.

The model is y = a * z + noise of standard deviation `SPREAD`, coordinate by coordinate, with the gains a as x. Expectations
over z are exact here: the losses are quadratic in z, so noise at the 2d cubature points +-sqrt(d) e_i has the right mean.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from methods import pictures
from sbmcl.beliefs import DiagonalGaussian
from sbmcl.config import LatentCompletion, LatentDDPM, LatentRotation, LatentVAE
from sbmcl.config.base import MethodConfig
from sbmcl.data.episodes import TaskName
from sbmcl.data.sine import SineSource
from sbmcl.episode import Episode, Examples
from sbmcl.heads import AngleHead, VectorHead
from sbmcl.methods.latent import Latent

SPREAD, DIM, SEEN, ASKED = 0.7, 3, 4, 2


class Gain(nn.Module):
    """y = weight * x * z: exact if its weight is one."""

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((DIM,), weight, dtype=torch.float64))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return self.weight * x * z


class Inverse(nn.Module):
    """The exact evidence of an example of that model, times what is to be wrong with it."""

    def __init__(self, stretch: float = 1.0):
        super().__init__()
        self.stretch = nn.Parameter(torch.full((DIM,), stretch, dtype=torch.float64))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([self.stretch * y / x, (self.stretch * x.square() / SPREAD**2).log()], -1)


def method(*, weight: float = 1.0, stretch: float = 1.0, mean: float = 0.0, **options: Any) -> Latent:
    """`kl_weight` 2 s^2 makes the squared error a Gaussian likelihood of variance s^2."""
    options = {"kl_weight": 2 * SPREAD**2} | options
    latent = Latent(Inverse(stretch), Gain(weight), VectorHead(), DIM, **options).double()
    nn.init.constant_(latent.prior_mean, mean)
    return latent


def episode(*, silent: bool = False) -> Episode:
    """One stream of the model; queries that are `silent` say nothing about z."""
    rng = torch.Generator().manual_seed(1)
    z = torch.randn(1, 1, DIM, generator=rng, dtype=torch.float64)

    def part(n: int, scale: float) -> Examples:
        x = scale * (0.5 + torch.rand(1, n, DIM, generator=rng, dtype=torch.float64))
        y = x * z + SPREAD * torch.randn(1, n, DIM, generator=rng, dtype=torch.float64)
        return Examples(x, y, torch.zeros(1, n, dtype=torch.long))

    return Episode(part(SEEN, 1.0), part(ASKED, 0.0 if silent else 1.0))


def exactly(latent: Latent, one: Episode, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The loss with the expectation over z taken at cubature points, one for each of as many copies of the episode."""
    points = math.sqrt(DIM) * torch.cat([torch.eye(DIM), -torch.eye(DIM)]).double()

    def noise(shape: tuple[int, ...], like: Tensor, rng: object) -> Tensor:
        return points.expand(shape)

    def copies(part: Examples) -> Examples:
        return Examples(*(t.expand(2 * DIM, *t.shape[1:]) for t in (part.x, part.targets, part.task)))

    with monkeypatch.context() as patch:
        patch.setattr("sbmcl.beliefs.diagonal_gaussian.standard_normal", noise)
        return latent.meta_loss(Episode(copies(one.stream), copies(one.query))).total


def bound(loss: Tensor) -> Tensor:
    """The loss, back in nats of one episode: the evidence lower bound."""
    values = (SEEN + ASKED) * DIM
    return -loss * values / (2 * SPREAD**2) - values / 2 * math.log(2 * math.pi * SPREAD**2)


def log_likelihood(one: Episode) -> Tensor:
    """log p(all y | all x), with z integrated out, from the joint covariance of all y of a coordinate."""
    x, y = (torch.cat([getattr(part, name)[0] for part in (one.stream, one.query)]) for name in ("x", "y"))
    total = torch.zeros((), dtype=torch.float64)
    for a, value in zip(x.T, y.T, strict=True):
        covariance = torch.outer(a, a) + SPREAD**2 * torch.eye(len(a), dtype=torch.float64)
        total = total + MultivariateNormal(torch.zeros_like(a), covariance).log_prob(value)
    return total


def analytic(latent: Latent, one: Episode) -> Tensor:
    """The bound by textbook formulas: posterior moments, Gaussian expectations of squares, torch's own KL."""
    gain, inverse = latent.model, latent.learner
    assert isinstance(gain, Gain)
    assert isinstance(inverse, Inverse)
    x, y = one.stream.x[0], one.stream.targets[0]
    prior = latent.prior_log_precision.exp()
    weights = inverse.stretch * x.square() / SPREAD**2
    precision = prior + weights.sum(0)
    mean = (prior * latent.prior_mean + (weights * inverse.stretch * y / x).sum(0)) / precision
    q = Normal(mean, precision.rsqrt())
    expected = torch.zeros((), dtype=torch.float64)
    for part in (one.stream, one.query):
        slope = gain.weight * part.x[0]
        error = (part.targets[0] - slope * mean).square() + slope.square() / precision
        expected = expected - (error / (2 * SPREAD**2) + math.log(SPREAD) + math.log(2 * math.pi) / 2).sum()
    return expected - kl_divergence(q, Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum()


WRONG = [
    pytest.param({}, id="exact"),
    pytest.param({"weight": 1.3}, id="another model"),
    pytest.param({"stretch": 0.6}, id="another learner"),
    pytest.param({"mean": 0.8}, id="another prior"),
]


@pytest.mark.parametrize("options", WRONG)
def test_the_bound_and_its_gradients_are_the_analytic_ones(
    options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    latent, one = method(**options), episode()
    mine, theirs = bound(exactly(latent, one, monkeypatch)), analytic(latent, one)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=0)
    parameters = dict(latent.named_parameters())
    assert set(parameters) == {"model.weight", "learner.stretch", "prior_mean", "prior_log_precision"}
    for got, wanted in zip(
        torch.autograd.grad(mine, parameters.values()), torch.autograd.grad(theirs, parameters.values()), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", WRONG[:1] + WRONG[2:])
def test_the_bound_is_below_the_likelihood(options: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Strictly, since the belief has not seen the queries."""
    latent, one = method(**options), episode()
    assert bound(exactly(latent, one, monkeypatch)) < log_likelihood(one) - 0.01


def test_the_exact_posterior_attains_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """With queries that say nothing of z, the belief about the stream is the posterior of everything."""
    one = episode(silent=True)
    torch.testing.assert_close(bound(exactly(method(), one, monkeypatch)), log_likelihood(one), rtol=1e-12, atol=0)
    for options in ({"stretch": 0.9}, {"mean": 0.1}):
        assert bound(exactly(method(**options), one, monkeypatch)) < log_likelihood(one) - 1e-3


def test_the_published_penalty_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes precisions for variances, so precise beliefs cost too much."""
    one = episode(silent=True)
    assert bound(exactly(method(published_kl=True), one, monkeypatch)) < log_likelihood(one) - 1
    latent = method(published_kl=True)
    belief = DiagonalGaussian.of(torch.zeros(1, 1), torch.tensor([[10.0]]).log())
    torch.testing.assert_close(latent._penalty(belief), torch.tensor([(10 - math.log(10) - 1) / 2]))


def test_the_belief_after_a_stream_is_the_exact_posterior() -> None:
    latent, one = method(), episode()
    x, y = one.stream.x, one.stream.targets
    state = latent.learn(latent.learn(latent.init(1), one.stream[:1]), one.stream[1:])
    precision = 1 + (x / SPREAD).square().sum(1)
    torch.testing.assert_close(state.precision, precision)
    torch.testing.assert_close(state.mean, (x * y / SPREAD**2).sum(1) / precision)


def test_every_example_has_a_z_of_its_own() -> None:
    seen: list[Tensor] = []

    class Watch(Gain):
        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            seen.append(z)
            return super().forward(x, z)

    latent = Latent(Inverse(), Watch(), VectorHead(), DIM).double()
    latent.meta_loss(episode(), rng=torch.Generator().manual_seed(0))
    (z,) = seen
    assert z.shape == (SEEN + ASKED, DIM)
    assert len(z.unique(dim=0)) == SEEN + ASKED


def test_answers_are_averaged_and_then_scored() -> None:
    """Not the other way round, which would score worse by the spread of the answers."""
    latent, one = method(samples=3), episode()
    state = latent.learn(latent.init(1), one.stream)
    z = [state.sample(ASKED, rng=rng).movedim(0, 1) for rng in [torch.Generator().manual_seed(5)] for _ in range(3)]
    expected = (sum(one.query.x * draw for draw in z) / 3 - one.query.targets).square().mean(-1)
    scores = latent.score(state, one.query, rng=torch.Generator().manual_seed(5))
    torch.testing.assert_close(scores["mse"], expected)
    at_mode = (one.query.x * state.mean.unsqueeze(1) - one.query.targets).square().mean(-1)
    torch.testing.assert_close(latent.score(state, one.query, at_mode=True)["mse"], at_mode)


def test_a_frozen_method_takes_examples_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    latent, one = method().eval(), episode()
    whole = latent.learn(latent.init(1), one.stream)
    monkeypatch.setattr("sbmcl.methods.base.PIECE", 3)
    with torch.no_grad():
        torch.testing.assert_close(latent.learn(latent.init(1), one.stream).mean, whole.mean)


def test_a_loss_of_angles_is_worth_one_nat() -> None:
    assert AngleHead().nats(torch.zeros(2, 3, 2)) == 1
    assert VectorHead().nats(torch.zeros(2, 3, 1, 16, 32)) == 512


PUBLISHED: list[tuple[MethodConfig, TaskName, float]] = [
    (LatentCompletion(), "completion", 4.712),
    (LatentRotation(), "rotation", 3.875),
    (LatentVAE(), "binarised", 4.783),
    (LatentDDPM(), "generation", 12.558),
]


@pytest.mark.parametrize(("config", "task", "millions"), PUBLISHED, ids=[task for _, task, _ in PUBLISHED])
def test_the_published_models_have_their_published_sizes(config: MethodConfig, task: TaskName, millions: float) -> None:
    built = config.build(pictures(task, size=32))
    assert round(sum(weight.numel() for weight in built.parameters()) / 1e6, 3) == millions


@pytest.mark.parametrize(("config", "task", "millions"), PUBLISHED, ids=[task for _, task, _ in PUBLISHED])
def test_a_model_refuses_data_that_asks_something_else(config: MethodConfig, task: TaskName, millions: float) -> None:
    with pytest.raises(ValueError, match=f"for --data.task {task}, but"):
        config.build(SineSource())


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="kl_weight cannot be negative"):
        LatentRotation(kl_weight=-1.0)
    with pytest.raises(ValueError, match="samples counts from 1"):
        LatentCompletion(samples=0)
    with pytest.raises(ValueError, match="draws 1, but got 0 and 0"):
        LatentVAE(warmup=0, draws=0)
    with pytest.raises(ValueError, match="got 16 channels in 32 groups"):
        LatentDDPM(base=16)
    with pytest.raises(ValueError, match="halves a picture 5 times"):
        LatentDDPM(levels=6).build(pictures("generation"))
