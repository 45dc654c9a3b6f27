"""Sine regression, measured from its draws: frequencies, phases, amplitudes and noise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from sbmcl.data.episodes import EpisodeShape
from sbmcl.data.sine import SineSource

GRID = np.linspace(0, 10, 50)
TASKS, EACH = 300, 6


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """x and y by task, example and grid point."""
    episode = SineSource().draw(EpisodeShape(TASKS, EACH, 1), 1, torch.Generator().manual_seed(0))
    x, y = (t.view(TASKS, EACH, 50).double().numpy() for t in (episode.stream.x, episode.stream.targets))
    return x, y


def fit(signal: np.ndarray, frequency: float) -> tuple[np.ndarray, float]:
    """Sine and cosine coefficients of each row at one frequency, and the root mean square of what is left."""
    basis = np.stack([np.sin(2 * np.pi * frequency * GRID), np.cos(2 * np.pi * frequency * GRID)], -1)
    coefficients = np.linalg.lstsq(basis, signal.T)[0]
    return coefficients, float(np.sqrt(np.mean((signal.T - basis @ coefficients) ** 2)))


@pytest.fixture(scope="module")
def frequencies(drawn: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Of each task, from its clean targets: the best of a grid, then by golden section."""
    coarse = np.linspace(0.08, 1.12, 261)
    phases = 2 * np.pi * coarse[:, None] * GRID
    basis = np.stack([np.sin(phases), np.cos(phases)], -1)
    inverse = np.linalg.pinv(basis)
    signal = drawn[1][:, 0]
    left = signal[:, None] - np.einsum("fgk,fkh,th->tfg", basis, inverse, signal)
    start = coarse[(left**2).sum(-1).argmin(-1)]

    def polished(y: np.ndarray, low: float, high: float) -> float:
        for _ in range(22):
            third = (high - low) / 3
            low, high = (low, high - third) if fit(y, low + third)[1] < fit(y, high - third)[1] else (low + third, high)
        return (low + high) / 2

    return np.array([polished(y, f - 0.004, f + 0.004) for y, f in zip(drawn[1], start, strict=True)])


def test_frequencies(frequencies: np.ndarray) -> None:
    assert stats.kstest(frequencies, stats.uniform(0.1, 1.0).cdf).pvalue > 1e-3
    assert frequencies.min() > 0.099
    assert frequencies.max() < 1.101


def test_targets_are_clean_sines_of_one_phase_and_a_new_amplitude_each(
    drawn: tuple[np.ndarray, np.ndarray], frequencies: np.ndarray
) -> None:
    amplitudes, phases = [], []
    for y, f in zip(drawn[1], frequencies, strict=True):
        (sine, cosine), left = fit(y, f)
        assert left < 1e-3
        amplitudes.append(np.hypot(sine, cosine))
        phase = np.arctan2(cosine, sine)
        assert np.abs(np.angle(np.exp(1j * (phase - phase[0])))).max() < 0.01
        phases.append(phase[0] % (2 * math.pi))
    assert stats.kstest(np.ravel(amplitudes), stats.uniform(0.5, 1).cdf).pvalue > 1e-3
    assert stats.kstest(phases, stats.uniform(0, 2 * math.pi).cdf).pvalue > 1e-3


def test_inputs_are_noisy_sines_of_the_same_frequency_and_amplitude_but_another_phase(
    drawn: tuple[np.ndarray, np.ndarray], frequencies: np.ndarray
) -> None:
    noise, difference, ratio = [], [], []
    for x, y, f in zip(*drawn, frequencies, strict=True):
        (sine, cosine), left = fit(x, f)
        clean = fit(y, f)[0]
        noise.append(left)
        ratio.append(np.hypot(sine, cosine) / np.hypot(*clean))
        difference.append((np.arctan2(cosine, sine) - np.arctan2(clean[1], clean[0])).mean() % (2 * math.pi))
    assert np.sqrt(np.mean(np.square(noise)) * 50 / 48) == pytest.approx(0.1, rel=0.02)  # two coefficients were fitted
    assert np.mean(ratio) == pytest.approx(1, abs=0.01)
    assert np.std(ratio) < 0.06
    assert stats.kstest(difference, stats.uniform(0, 2 * math.pi).cdf).pvalue > 1e-3


def test_a_draw_is_a_function_of_the_generator_alone() -> None:
    def draw(seed: int) -> torch.Tensor:
        return SineSource().draw(EpisodeShape(2, 3, 1), 2, torch.Generator().manual_seed(seed)).stream.x

    one = draw(0)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert torch.equal(one, draw(0))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(one, draw(1))


def test_shots_and_queries_share_the_task_and_nothing_else() -> None:
    episode = SineSource().draw(EpisodeShape(1, 50, 50), 1, torch.Generator().manual_seed(0))
    shapes = torch.cat([episode.stream.targets, episode.query.targets], dim=1)[0]
    scaled = shapes / shapes.norm(dim=-1, keepdim=True)
    assert (scaled @ scaled[0] > 0.9999).all()
    assert len(shapes[:, 10].unique()) == 100


def test_any_size_can_be_drawn() -> None:
    source = SineSource()
    source.check(EpisodeShape(500, 200, 50))
    assert (source.x_shape, source.y_shape, source.kind, source.query_cap) == ((50,), (50,), "vector", 50)
