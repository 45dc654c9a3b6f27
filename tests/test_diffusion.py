"""The diffusion process by its moments, and its samplers on data so simple that the noise in a picture is known exactly."""

from typing import Any

import pytest
import torch
from torch import Tensor

from methods import pictures
from sbmcl.config import LatentDDPM
from sbmcl.data.episodes import EpisodeShape
from sbmcl.heads import DiffusionHead
from sbmcl.heads.diffusion import NoiseIn
from sbmcl.methods.latent import LatentDDPM as Method

CPU = torch.device("cpu")


def gaussian(head: DiffusionHead, mean: float, spread: float) -> NoiseIn:
    """The expected noise in x_t where every pixel of the data is N(mean, spread^2): linear in x_t."""

    def noise_in(x_t: Tensor, t: Tensor) -> Tensor:
        kept = head.kept(CPU)[t][..., None, None, None]
        variance = kept * spread**2 + 1 - kept
        return (1 - kept).sqrt() * (x_t - kept.sqrt() * mean) / variance

    return noise_in


def pure_noise(n: int = 10_000) -> Tensor:
    """Evenly over the quantiles, in random order, so that its moments are those of the distribution."""
    share = (torch.randperm(n, generator=torch.Generator().manual_seed(0)).double() + 0.5) / n
    return torch.special.ndtri(share).view(1, n, 1, 1, 1)


def test_the_schedule_is_the_published_one() -> None:
    kept = DiffusionHead().kept(CPU)
    assert kept[0].item() == pytest.approx(0.9999)
    assert kept[-1].item() == pytest.approx(4.04e-5, rel=2e-3)
    assert DiffusionHead(200).kept(CPU)[-1].item() == pytest.approx(4.04e-5, rel=0.5)  # drowned alike
    with pytest.raises(ValueError, match="at least 21"):
        DiffusionHead(20)


@pytest.mark.parametrize("t", [0, 300, 999])
def test_noised_pictures_have_the_right_moments(t: int) -> None:
    """Those of the chain x_s = sqrt(1 - beta_s) x_{s-1} + sqrt(beta_s) e, followed step by step."""
    head, noise = DiffusionHead(), pure_noise()
    mean, variance = 0.6, 0.0
    for beta in torch.linspace(1e-4, 0.02, 1_000, dtype=torch.float64)[: t + 1].tolist():
        mean, variance = (1 - beta) ** 0.5 * mean, (1 - beta) * variance + beta
    x = torch.full_like(noise, 0.6)
    time = torch.full(noise.shape[:2], t)
    x_t = head.noised(x, time, noise)
    assert x_t.mean().item() == pytest.approx(mean, abs=0.01)
    assert x_t.var().item() == pytest.approx(variance, rel=0.02)
    torch.testing.assert_close(head.cleaned(x_t, time, noise), x)


def test_a_question_is_a_time_and_a_noise() -> None:
    head, x = DiffusionHead(50), torch.zeros(20, 500, 1, 2, 2)
    (x_t, t), noise = head.ask(x, x + 0.5, torch.Generator().manual_seed(0))
    assert set(t.unique().tolist()) == set(range(50))
    assert t.float().mean().item() == pytest.approx(24.5, abs=0.5)
    torch.testing.assert_close(x_t, head.noised(x + 0.5, t, noise))
    wrong = head.scores(noise + 0.1, noise)["noise_mse"]
    torch.testing.assert_close(wrong, torch.full((20, 500), 0.01))
    torch.testing.assert_close(head.loss(noise + 0.1, noise), wrong.mean())


@pytest.mark.parametrize(("steps", "mean", "spread"), [(1_000, 0.3, 0.15), (200, -0.2, 0.2)])
def test_the_ancestral_sampler_recovers_the_data(steps: int, mean: float, spread: float) -> None:
    head = DiffusionHead(steps)
    drawn = head.ancestral(gaussian(head, mean, spread), pure_noise(), torch.Generator().manual_seed(1))
    assert drawn.mean().item() == pytest.approx(mean, abs=0.01)
    assert drawn.std().item() == pytest.approx(spread, rel=0.05)


def test_only_the_last_step_is_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Tensor] = []

    def watched(shape: torch.Size, like: Tensor, rng: torch.Generator | None) -> Tensor:
        added.append(torch.randn(shape, generator=rng, dtype=like.dtype))
        return added[-1]

    monkeypatch.setattr("sbmcl.heads.diffusion.standard_normal", watched)
    head = DiffusionHead(50)
    head.ancestral(gaussian(head, 0.0, 0.2), pure_noise(10), torch.Generator().manual_seed(0))
    assert len(added) == 49


@pytest.mark.parametrize(("steps", "within"), [(20, 0.14), (50, 0.07), (1_000, 0.02)])
@pytest.mark.parametrize("spread", [0.1, 0.2])
def test_ddim_recovers_the_data_in_a_few_steps(steps: int, within: float, spread: float) -> None:
    head, start = DiffusionHead(), pure_noise(2_000)
    drawn = head.ddim(gaussian(head, 0.3, spread), start, steps)
    assert drawn.mean().item() == pytest.approx(0.3, abs=0.01)
    assert drawn.std().item() == pytest.approx(spread, rel=within)


def test_ddim_is_a_function_of_its_start() -> None:
    """It keeps the order of its starts, and ends at the data where there is but one picture."""
    head, start = DiffusionHead(), pure_noise(100)
    drawn = head.ddim(gaussian(head, 0.3, 0.15), start, 50)
    assert torch.equal(head.ddim(gaussian(head, 0.3, 0.15), start, 50), drawn)
    assert torch.equal(drawn.flatten().argsort(), start.flatten().argsort())
    torch.testing.assert_close(head.ddim(gaussian(head, 0.3, 0.0), start, 20), torch.full_like(start, 0.3))
    with pytest.raises(ValueError, match="but 1001 were asked for"):
        head.ddim(gaussian(head, 0.3, 0.15), start, 1_001)


@torch.no_grad()
def test_pictures_are_drawn_from_what_was_learned() -> None:
    torch.manual_seed(0)
    source = pictures("generation-16", size=32)
    assert source.x_shape == (1, 16, 16)
    method = LatentDDPM(base=8, levels=2, groups=4, steps=25).build(source).eval()
    assert isinstance(method, Method)
    episode = source.draw(EpisodeShape(3, 2, 2), 2, torch.Generator().manual_seed(1))
    state = method.learn(method.init(2), episode.stream)

    def drawn(state: Any, seed: int, steps: int | None = 3) -> Tensor:
        return method.sample(state, 3, rng=torch.Generator().manual_seed(seed), steps=steps)

    for steps in (None, 3):
        assert drawn(state, 0, steps).shape == (2, 3, 1, 16, 16)
        assert drawn(state, 0, steps).abs().max() <= 1
    assert torch.equal(drawn(state, 0), drawn(state, 0))
    assert not torch.equal(drawn(state, 0), drawn(state, 1))
    assert not torch.equal(drawn(state, 0), drawn(method.init(2), 0))
    made = method.predict(state, episode.query.x, rng=torch.Generator().manual_seed(0))
    assert made.shape == episode.query.x.shape
    assert made.abs().max() <= 1


@torch.no_grad()
def test_a_known_model_is_recovered_through_the_method() -> None:
    """The method's own sampler, with z the mean of the data: every picture's mean is its z."""
    head = DiffusionHead(200)

    class Shifted(torch.nn.Module):
        def forward(self, x_t: Tensor, t: Tensor, z: Tensor) -> Tensor:
            return gaussian(head, 0.0, 0.1)(
                (x_t - head.kept(CPU)[t].sqrt().view(-1, 1, 1, 1) * z.view_as(x_t))[None], t[None]
            )[0]

    method = Method(torch.nn.Identity(), Shifted(), head, 1, (1, 1, 1)).double()
    torch.nn.init.constant_(method.prior_mean, 0.4)
    drawn = method.sample(method.init(1), 10_000, rng=torch.Generator().manual_seed(0), at_mode=True)
    assert drawn.mean().item() == pytest.approx(0.4, abs=0.01)
    assert drawn.std().item() == pytest.approx(0.1, rel=0.08)


def test_pictures_are_averaged_down() -> None:
    full, small = pictures("generation", size=32), pictures("generation-16", size=32)
    shape = EpisodeShape(2, 2, 1)
    big, little = (source.draw(shape, 1, torch.Generator().manual_seed(0)).stream.x for source in (full, small))
    blocks = big.unflatten(-2, (16, 2)).unflatten(-1, (16, 2)).mean((-1, -3))
    torch.testing.assert_close(little, blocks)
    with pytest.raises(ValueError, match="24 x 24 cannot be averaged down to 16"):
        pictures("generation-16", size=24)
