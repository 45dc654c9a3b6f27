"""A step of the outer loop against the same step written out by hand."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sbmcl import train as outer
from sbmcl.config import ALPaCA, Sine, Training
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.sine import SineSource
from sbmcl.experiment import Experiment
from sbmcl.methods.base import Method
from sbmcl.runs import RunFolder
from sbmcl.train import new_learner, one_step, train

CPU = torch.device("cpu")
SMALL = Training(steps=4, episodes=2, shape=EpisodeShape(2, 2, 2), lr=1e-2, schedule="constant", validation_episodes=2)


def experiment(seed: int = 0, **changes: Any) -> Experiment[Sine, ALPaCA]:
    method = ALPaCA(width=4, hidden=4)
    return Experiment("tiny", "sine/regression", "sbmcl", Sine(), method, replace(SMALL, **changes), seed)


def adam(
    weights: dict[str, Tensor], gradients: list[dict[str, Tensor]], lr: list[float], decay: float
) -> dict[str, Tensor]:
    """AdamW from its definition: moments 0.9 and 0.999, bias corrected, decay apart from the gradient."""
    first, second = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    for t, (gradient, rate) in enumerate(zip(gradients, lr, strict=True), 1):
        for name, g in gradient.items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g.square()
            step = first[name] / (1 - 0.9**t) / ((second[name] / (1 - 0.999**t)).sqrt() + 1e-8)
            weights[name] = weights[name] * (1 - rate * decay) - rate * step
    return weights


def recorded(
    experiment: Experiment[Any, Any], steps: int
) -> tuple[Any, list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """The learner after so many steps, with the weights it had after each and the (clipped) gradients it used."""
    learner, source = new_learner(experiment, SineSource(), CPU), SineSource()
    weights, gradients = [], []
    for _ in range(steps):
        one_step(learner, experiment, source, CPU)
        parameters = dict(learner.method.named_parameters())
        weights.append({name: p.detach().clone() for name, p in parameters.items()})
        gradients.append({name: p.grad.clone() for name, p in parameters.items() if p.grad is not None})
    return learner, weights, gradients


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({"schedule": "constant"}, [0.01, 0.01, 0.01]),
        ({"schedule": "halve", "halve_every": 1}, [0.01, 0.005, 0.0025]),
        ({"schedule": "constant", "warmup": 2}, [0.005, 0.01, 0.01]),
    ],
    ids=["constant", "halved", "warmed up"],
)
def test_weights_move_by_adam_at_the_rate_of_the_schedule(
    decay: float, schedule: dict[str, Any], rates: list[float]
) -> None:
    settings = experiment(weight_decay=decay, **schedule)
    start = {n: p.detach().clone() for n, p in new_learner(settings, SineSource(), CPU).method.named_parameters()}
    _, weights, gradients = recorded(settings, 3)
    right = adam(start, gradients, rates, decay)
    torch.testing.assert_close(weights[-1], right, rtol=1e-5, atol=1e-7)


def test_the_gradient_is_that_of_the_loss_of_the_drawn_episodes() -> None:
    settings = experiment(seed=3)
    method = new_learner(settings, SineSource(), CPU).method.train()
    episode = SineSource().draw(settings.training.shape, 2, rng_for(3, "train", 0))
    method.meta_loss(episode, rng=rng_for(3, "method", 0)).total.backward()
    _, _, gradients = recorded(settings, 1)
    torch.testing.assert_close({n: p.grad for n, p in method.named_parameters()}, gradients[0], rtol=0, atol=0)


def test_clipping_limits_the_norm_of_the_whole_gradient() -> None:
    _, _, free = recorded(experiment(), 1)
    _, _, clipped = recorded(experiment(clip=0.1), 1)

    def norm(gradients: dict[str, Tensor]) -> float:
        return math.sqrt(sum(g.square().sum().item() for g in gradients.values()))

    assert norm(free[0]) > 0.2
    assert norm(clipped[0]) == pytest.approx(0.1, rel=1e-4)
    for name, g in free[0].items():
        torch.testing.assert_close(clipped[0][name], g * 0.1 / norm(free[0]), rtol=1e-3, atol=1e-8)


def test_the_running_average_is_what_is_evaluated() -> None:
    settings = experiment(ema=0.75)
    learner, weights, _ = recorded(settings, 4)
    average = copy.deepcopy(weights[0])  # it starts at the first weights
    for step in weights[1:]:
        average = {name: 0.75 * average[name] + 0.25 * step[name] for name in average}
    assert learner.evaluated is not learner.method
    torch.testing.assert_close(
        {n: p.detach() for n, p in learner.evaluated.named_parameters()}, average, rtol=1e-5, atol=1e-7
    )
    assert new_learner(experiment(), SineSource(), CPU).evaluated is not learner.evaluated
    plain = new_learner(experiment(), SineSource(), CPU)
    assert plain.evaluated is plain.method


def test_batch_norm_is_averaged_along() -> None:
    """Averaged weights with the last batch's statistics would be a network that never was."""
    learner, _, _ = recorded(experiment(ema=0.75), 4)
    norms = [m for m in learner.method.modules() if isinstance(m, nn.BatchNorm1d)]
    averaged = [m for m in learner.evaluated.modules() if isinstance(m, nn.BatchNorm1d)]
    for one, other in zip(norms, averaged, strict=True):
        assert one.running_mean is not None
        assert other.running_mean is not None
        assert not torch.equal(one.running_mean, other.running_mean)


def test_seeds_decide_weights_and_episodes() -> None:
    one, again, other = (recorded(experiment(seed=seed), 2)[1][-1] for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in ("encoder.0.weight", "encoder.3.weight"))


def test_what_torch_drew_before_does_not_matter() -> None:
    torch.manual_seed(9)
    torch.rand(13)
    one = recorded(experiment(), 2)[1][-1]
    torch.manual_seed(10)
    assert all(torch.equal(one[name], weight) for name, weight in recorded(experiment(), 2)[1][-1].items())


def test_best_is_the_lowest_validation_and_last_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder.create(tmp_path / "run", experiment(steps=5, validate_every=1), CPU)
    scores = iter([0.5, 0.2, 0.3, 0.2, float("nan")])
    monkeypatch.setattr(outer, "validate", lambda *_: next(scores))
    train(run.experiment(), run, CPU, show=False)
    _, weights, _ = recorded(run.experiment(), 5)
    for which, step in (("best", 2), ("last", 5)):
        method = new_learner(run.experiment(), SineSource(), CPU).method
        assert run.load_weights(method, which) == step  # pyright: ignore[reportArgumentType]
        assert all(torch.equal(p, weights[step - 1][name]) for name, p in method.named_parameters())
    method = new_learner(run.experiment(), SineSource(), CPU).method
    assert run.load_weights(method) == 2
    assert [entry["validation"] for entry in run.read_log() if "validation" in entry][:4] == [0.5, 0.2, 0.3, 0.2]


def test_validation_asks_the_same_episodes_and_leaves_no_trace() -> None:
    learner = new_learner(experiment(), SineSource(), CPU)
    method: Method[Any] = learner.method
    before = copy.deepcopy(method.state_dict())
    random = torch.get_rng_state()
    scores = {outer.validate(method, SineSource(), SMALL, CPU) for _ in range(2)}
    assert len(scores) == 1
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize(
    ("setting", "value"),
    [("episodes", 0), ("steps", -1), ("lr", 0.0), ("ema", 1.0), ("clip", -1.0), ("checkpoint_every", 0)],
)
def test_settings_that_make_no_sense_are_refused_by_name(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"training.{setting}"):
        Training(**{setting: value})
