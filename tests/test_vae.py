"""Bits a pixel of a variational auto-encoder, on pictures of four pixels: all sixteen of them can be gone through."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from methods import pictures
from sbmcl.config import LatentVAE, Training
from sbmcl.config.base import DataConfig, Split
from sbmcl.data.episodes import EpisodeShape, EpisodeSource
from sbmcl.data.tasks import Binarised
from sbmcl.experiment import Experiment
from sbmcl.heads import VAEHead
from sbmcl.nets.vae import VAE, Reconstruction
from sbmcl.train import new_learner, one_step

ALL = torch.tensor(list(product((-1.0, 1.0), repeat=4)), dtype=torch.float64).view(16, 1, 2, 2)
SLOPE = torch.tensor([1.5, -0.7, 0.3, 2.0], dtype=torch.float64)
OFFSET = torch.tensor([0.2, -1.0, 0.5, 0.0], dtype=torch.float64)


class Infer(nn.Module):
    """A mean and a log-variance that depend on the picture, near nothing in particular."""

    def forward(self, code: Tensor) -> Tensor:
        return torch.cat([0.3 * code.sum(-1, keepdim=True), -0.5 + 0.1 * code[:, :1]], -1)


class Decoder(nn.Module):
    def __init__(self, slope: Tensor = SLOPE):
        super().__init__()
        self.slope = slope

    def forward(self, u: Tensor) -> Tensor:
        return (OFFSET + self.slope * u).view(-1, 1, 2, 2)


def expected_bits(vae: VAE, nodes: int = 64) -> Tensor:
    """The head's score of each picture, its expectation over u by Gauss-Hermite quadrature."""
    points, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(nodes))
    noise = points.view(1, nodes, 1).expand(16, -1, -1)
    picture = ALL.unsqueeze(1).expand(-1, nodes, -1, -1, -1)
    answer = vae(picture.reshape(16 * nodes, 4), noise.reshape(16 * nodes, 1))
    answer = Reconstruction(*(t.unflatten(0, (16, nodes)) for t in (answer.logits, answer.mean, answer.log_variance)))
    return VAEHead(1).scores(answer, picture)["bpd"] @ weights / weights.sum()


def test_bits_agree_with_summation_over_all_there_is() -> None:
    """-log p(x) = 4 ln 2 bpd - KL(q(u | x) || p(u | x)), with p(x) and the true posterior summed up on a fine grid of u."""
    grid = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(grid)
    on = (OFFSET + SLOPE * grid.unsqueeze(-1)).sigmoid()  # of each pixel at each u
    step = math.log(24 / 20_000)
    total = torch.zeros((), dtype=torch.float64)
    for picture, bits in zip(ALL, expected_bits(VAE(Infer(), Decoder())), strict=True):
        white = picture.flatten() > 0
        joint = prior + torch.where(white, on, 1 - on).log().sum(-1)
        evidence = joint.logsumexp(0) + step
        mean, log_variance = Infer()(picture.view(1, 4))[0]
        q = torch.distributions.Normal(mean, (log_variance / 2).exp()).log_prob(grid)
        gap = (q.exp() * (q - (joint - evidence))).sum() * math.exp(step)
        assert gap > 0.001
        torch.testing.assert_close(bits * 4 * math.log(2), gap - evidence, rtol=1e-8, atol=0)
        total += evidence.exp()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-8, atol=0)


def test_bits_are_exact_where_u_says_nothing() -> None:
    """Independent pixels and q = p: the mean over all pictures is the entropy of the pixels."""

    class Nothing(nn.Module):
        def forward(self, code: Tensor) -> Tensor:
            return torch.zeros(len(code), 2, dtype=torch.float64)

    on = OFFSET.sigmoid()
    chance = torch.where(ALL.flatten(1) > 0, on, 1 - on).prod(-1)
    entropy = torch.distributions.Bernoulli(on).entropy().sum() / (4 * math.log(2))
    bits = expected_bits(VAE(Nothing(), Decoder(0 * SLOPE)))
    torch.testing.assert_close((chance * bits).sum(), entropy)
    torch.testing.assert_close(bits, -chance.log2() / 4)


def test_both_halves_read_what_is_given() -> None:
    vae = VAE(nn.Linear(3 + 2, 2), nn.Linear(2 + 1, 4))
    code, noise, given = torch.randn(5, 3), torch.randn(5, 1), torch.randn(5, 2)
    vae.decoder = nn.Sequential(vae.decoder, nn.Unflatten(1, (1, 2, 2)))
    answer = vae(code, noise, given)
    mean, log_variance = vae.infer(torch.cat([code, given], -1)).chunk(2, -1)
    torch.testing.assert_close(answer.mean, mean)
    torch.testing.assert_close(answer.logits, vae.decode(mean + log_variance.exp().sqrt() * noise, given))


def some_answer() -> tuple[Reconstruction, Tensor]:
    rng = torch.Generator().manual_seed(0)
    mean, log_variance = torch.randn(2, 1, 3, 2, generator=rng)
    return Reconstruction(torch.randn(1, 3, 1, 2, 2, generator=rng), mean, log_variance), ALL[None, :3].float()


def test_the_weight_of_the_code_rises_with_the_outer_loop() -> None:
    head, (answer, y) = VAEHead(2, warmup=10), some_answer()
    parts = {name: score.mean() for name, score in head.scores(answer, y).items()}
    for step, weight in [(0, 0.0), (5, 0.5), (10, 1.0), (99, 1.0), (None, 1.0)]:
        loss = head.at(step).loss(answer, y)
        torch.testing.assert_close(loss, parts["reconstruction"] + weight * parts["code"])
        torch.testing.assert_close(head.at(step).scores(answer, y)["bpd"].mean(), parts["bpd"])
    assert parts["code"] > 0.1


@dataclass(frozen=True)
class Tiny(DataConfig):
    name = "tiny"

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        return pictures("binarised")


def test_training_says_how_far_it_is() -> None:
    """The warm-up follows the outer loop's own step, so it goes on where an interrupted run stopped."""
    training = Training(steps=9, episodes=1, shape=EpisodeShape(3, 2, 2))
    experiment = Experiment("none", "tiny/vae", "sbmcl", Tiny(), LatentVAE(width=4, warmup=4), training)
    learner = new_learner(experiment, Tiny().source("train"), torch.device("cpu"))
    learner.step = 3
    assert learner.method.meta_step is None
    for step in (3, 4):
        one_step(learner, experiment, Tiny().source("train"), torch.device("cpu"))
        assert learner.method.meta_step == step


def test_binary_pixels_are_white_as_often_as_they_are_light() -> None:
    """max(0, 2 p / 255 - 1) for a pixel p of 0 to 255, afresh at every draw."""
    level = torch.tensor([0, 100, 127, 160, 223, 255])
    task, rng = Binarised(), torch.Generator().manual_seed(0)
    grey = (level / 127.5 - 1).view(1, 1, 1, 1, 1, 6).expand(1, 1, 20_000, 1, 1, 6)
    x, y = task(grey, rng)
    assert y is None
    assert set(x.unique().tolist()) == {-1.0, 1.0}
    white = (x > 0).double().mean(2).flatten()
    expected = (2 * level / 255 - 1).clamp_min(0).double()
    torch.testing.assert_close(white, expected, rtol=0, atol=0.02)
    assert white[:3].tolist() == [0, 0, 0]
    assert white[5] == 1
    assert not torch.equal(task(grey, rng)[0], x)


@torch.no_grad()
def test_pictures_are_made_and_made_again() -> None:
    torch.manual_seed(0)
    method = LatentVAE(width=8).build(source := pictures("binarised")).eval()
    episode = source.draw(EpisodeShape(3, 2, 2), 2, torch.Generator().manual_seed(1))
    state = method.learn(method.init(2), episode.stream)
    first, again, other = (method.sample(state, 5, rng=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert first.shape == (2, 5, 1, 16, 16)
    assert first.abs().max() <= 1
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(method.sample(method.init(2), 5, rng=torch.Generator().manual_seed(0)), first)
    made = method.predict(state, episode.query.x, at_mode=True)
    assert made.shape == episode.query.x.shape
    assert torch.equal(made, method.predict(state, episode.query.x, at_mode=True))


def test_grey_pictures_are_refused() -> None:
    with pytest.raises(ValueError, match="task binarised, but"):
        LatentVAE().build(pictures("generation"))
