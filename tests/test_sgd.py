"""Offline and Online against a plain loop over one ordinary network with torch's own optimiser."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import METHODS, pictures
from sbmcl.config import Diffusion, Offline, Online
from sbmcl.data.episodes import EpisodeShape, EpisodeSource, rng_for
from sbmcl.data.sine import SineSource
from sbmcl.episode import Episode
from sbmcl.methods import sgd
from sbmcl.methods.sgd import Batch, FromScratch, Models
from sbmcl.state import map_tensors

SHAPE = EpisodeShape(tasks=3, shots=5, queries=2)


def prepared(name: str, seed: int = 0) -> tuple[Any, Episode]:
    """A method and three episodes in float64; their streams are of odd length."""
    torch.manual_seed(seed)
    source = METHODS[name].source()
    episode = source.draw(SHAPE, 3, rng_for(0, "test", 0))
    method = METHODS[name].build(source).double().eval()
    return method, map_tensors(lambda t: t.double() if t.is_floating_point() else t, episode)


def rng(index: int = 0) -> torch.Generator:
    return rng_for(0, "method", index)


def network_of(method: FromScratch[Any], models: Models, index: int) -> nn.Module:
    """One row of the models as an ordinary network."""
    network = copy.deepcopy(method.network)
    nn.utils.vector_to_parameters(models.weights[index].clone(), network.parameters())
    for name, buffer in network.named_buffers():
        buffer.copy_(models.averages[name][index])
    return network


def train_plainly(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], known: int | None) -> int | None:
    """As anyone would write it. A classifier starts from so many `known` classes and returns how many it then knows."""
    optimizer = torch.optim.Adam(network.parameters(), 1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    network.train()
    for x, y in batches:
        if known is not None:
            known = max(known, int(y.max()) + 1)
        loss = F.mse_loss(network(x), y) if known is None else F.cross_entropy(network(x)[:, :known], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return known


@pytest.mark.parametrize("name", ["online-classes", "online-vector"])
def test_online_is_one_pass_of_adam_in_the_order_of_the_stream(name: str) -> None:
    method, episode = prepared(name)
    start = method.init(3, rng=rng())
    state = method.learn(start, episode.stream)
    answer = method.predict(state, episode.query.x)
    for i in range(3):
        network = network_of(method, start.models, i)
        x, y = episode.stream.x[i], episode.stream.targets[i]
        batches = [
            (x[k : k + method.batch], y[k : k + method.batch]) for k in range(0, 15 - method.batch + 1, method.batch)
        ]
        known = train_plainly(network, batches, known=0 if method.classes else None)
        torch.testing.assert_close(answer[i, :, :known], network.eval()(episode.query.x[i])[:, :known])
        for buffer, average in zip(network.buffers(), state.models.averages.values(), strict=True):
            torch.testing.assert_close(average[i], buffer)


@pytest.mark.parametrize("name", ["offline-classes", "offline-vector"])
def test_offline_trains_on_batches_of_all_that_was_kept(name: str) -> None:
    method, episode = prepared(name)
    state = method.learn(method.init(3), episode.stream)
    torch.testing.assert_close(state.x, episode.stream.x)
    answer = method.predict(state, episode.query.x, rng=rng())
    again = rng()
    start, batches = method.fresh(3, again), list(method._batches(state, again))
    assert len(batches) == method.steps
    for i in range(3):
        network = network_of(method, start, i)
        known = train_plainly(network, [(b.x[i], b.y[i]) for b in batches], known=3 if method.classes else None)
        torch.testing.assert_close(answer[i, :, :known], network.eval()(episode.query.x[i])[:, :known])


def test_offline_draws_from_the_whole_stream_of_its_own_episode() -> None:
    method, _ = prepared("offline-vector")
    mark = torch.arange(3.0).view(3, 1, 1) * 100 + torch.arange(15.0).view(1, 15, 1)
    method.steps = 100
    drawn = torch.cat([batch.x for batch in method._batches(Batch(mark, mark), rng())], dim=1)
    for i in range(3):
        assert set(drawn[i].flatten().tolist()) == set(mark[i].flatten().tolist())


def test_published_online_is_one_pass_in_an_order_of_each_episode_s_own() -> None:
    method = Online(width=4, shuffled=True).build(SineSource())
    mark = torch.arange(15.0).view(1, 15, 1).expand(3, -1, -1)
    orders = torch.cat([batch.x for batch in method._batches(Batch(mark, mark), rng())], dim=1)
    assert orders.shape == (3, 14, 1)
    assert all(len(set(order.flatten().tolist())) == 14 for order in orders)
    assert not torch.equal(orders[0], orders[1])


def test_given_enough_steps_offline_fits_what_it_was_shown() -> None:
    method, episode = prepared("offline-classes")
    method.steps, method.lr, method.halve_every, method.batch = 60, 0.01, 100, 8
    state = method.learn(method.init(3), episode.stream)
    answer = method.predict(state, episode.stream.x, rng=rng())
    assert torch.equal(answer.argmax(-1), episode.stream.targets)


def test_an_example_without_a_batch_waits() -> None:
    method, episode = prepared("online-classes")
    even = method.learn(method.init(3, rng=rng()), episode.stream[:14])
    odd = method.learn(even, episode.stream[14:])
    assert torch.equal(odd.models.weights, even.models.weights)
    assert torch.equal(odd.models.steps, torch.tensor([7, 7, 7]))
    torch.testing.assert_close(odd.waiting.x, episode.stream.x[:, 14:])
    assert len(even.waiting) == 0
    assert not torch.equal(method.learn(odd, episode.stream[:1]).models.weights, even.models.weights)


def test_one_batched_call_and_one_network_after_another_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two routes of a GPU and a CPU, with convolutions and the batch-norms' averages."""
    source = pictures("completion", size=32)
    torch.manual_seed(0)
    method = Online(width=16).build(source).double()
    episode = source.draw(EpisodeShape(2, 3, 2), 3, rng_for(0, "test", 0))
    episode = map_tensors(lambda t: t.double() if t.is_floating_point() else t, episode)

    def outcome() -> tuple[Any, Tensor]:
        state = method.learn(method.init(3, rng=rng()), episode.stream)
        return state.models, method.predict(state, episode.query.x)

    models, answer = outcome()
    monkeypatch.setattr(sgd, "side_by_side", lambda function, *trees: torch.vmap(function)(*trees))
    other, batched = outcome()
    torch.testing.assert_close(batched, answer)
    torch.testing.assert_close(other.weights, models.weights)
    torch.testing.assert_close(other.averages, models.averages)


def test_every_stream_and_every_run_starts_from_a_network_of_its_own() -> None:
    method, _ = prepared("online-vector")
    other, _ = prepared("online-vector", seed=1)
    before = torch.get_rng_state()
    starts = [*method.init(3, rng=rng()).models.weights, *other.init(3, rng=rng()).models.weights]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(not torch.equal(a, b) for k, a in enumerate(starts) for b in starts[:k])
    assert torch.equal(method.init(3, rng=rng()).models.weights, torch.stack(starts[:3]))
    assert starts[0].std().sub(starts[3].std()).abs() < 0.02  # both as the layers' own initialisation draws them


@pytest.mark.parametrize("name", ["online-vae", "offline-vae"])
def test_auto_encoders_are_trained_with_noise_of_their_own_and_asked_as_they_then_are(name: str) -> None:
    """Written out for one network: bits of its batches, while the weight of the code rises, and new pictures at the end."""
    method, episode = prepared(name)
    again = rng()
    state = method.learn(method.init(3, rng=rng()), episode.stream)
    models = method.trained(state, rng())
    start = method.fresh(3, again)
    if name == "online-vae":
        batches = [Batch(episode.stream.x[:, k : k + 5], None) for k in (0, 5, 10)]
    else:
        batches = list(method._batches(state, again))
    for i in range(3):
        network, questions = network_of(method, start, i), start.questions
        optimizer = torch.optim.Adam(network.parameters(), 1e-4)
        network.train()
        for step, batch in enumerate(batches):
            ((_, noise), _), questions = questions.ask(method.head, batch.x)
            x, answer = batch.x[i], network(batch.x[i], noise[i])
            on = answer.logits.sigmoid()
            nats = -torch.where(x > 0, on, 1 - on).log().sum()
            code = (answer.mean**2 + answer.log_variance.exp() - answer.log_variance - 1).sum() / 2
            loss = (nats + step / 100 * code) / (x.numel() * math.log(2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        flat = nn.utils.parameters_to_vector(network.parameters())
        torch.testing.assert_close(models.weights[i], flat.detach())
        u = torch.randn(3, 4, 8, generator=drawing(name, rng()), dtype=torch.float64)
        made = method.sample(state, 4, rng=rng())
        torch.testing.assert_close(made[i], 2 * network.eval().decode(u[i]).sigmoid() - 1)


def drawing(name: str, generator: torch.Generator) -> torch.Generator:
    """Where new pictures' noise comes from: Offline has drawn networks, questions and batches of it before."""
    if name == "offline-vae":
        for _ in range(2):
            torch.randint(2**31, (3,), generator=generator)
        for _ in range(3):
            torch.randint(15, (3, 4), generator=generator)
    return generator


def test_there_is_nothing_to_meta_train() -> None:
    method, episode = prepared("online-vector")
    with pytest.raises(TypeError, match="nothing to meta-train"):
        method.meta_loss(episode)


def test_labels_without_an_output_are_refused() -> None:
    method, episode = prepared("online-classes")
    with pytest.raises(ValueError, match="outputs for 7 classes, but got labels from 0 to 7"):
        method.learn(method.init(3), map_tensors(lambda t: t if t.is_floating_point() else t * 7 // 2, episode.stream))


class Asks(SineSource):
    """A source by its shapes alone."""

    def __init__(self, kind: Any, x_shape: tuple[int, ...], y_shape: tuple[int, ...]):
        self.kind, self.x_shape, self.y_shape = kind, x_shape, y_shape


@pytest.mark.parametrize(
    ("source", "millions"),
    [
        (Asks("classes", (1, 32, 32), ()), 1.773),
        (SineSource(), 0.579),
        (Asks("image", (1, 16, 32), (1, 16, 32)), 2.420),
        (Asks("angle", (1, 32, 32), (2,)), 1.769),
        (Asks("binary", (1, 32, 32), ()), 3.207),
        (Asks("generation", (1, 32, 32), ()), 8.685),
    ],
)
def test_the_networks_have_the_published_number_of_parameters(source: EpisodeSource, millions: float) -> None:
    method = Offline(classes=10).build(source)
    assert round(sum(p.numel() for p in method.parameters()) / 1e6, 3) == millions


@pytest.mark.parametrize("wrong", [{"batch": 1}, {"lr": 0.0}, {"width": 0}, {"halve_every": 0}, {"classes": 0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    for config in (Online, Offline):
        with pytest.raises(ValueError, match=f"method.{next(iter(wrong))}"):
            config(**wrong)
    with pytest.raises(ValueError, match=r"method\.steps"):
        Offline(steps=0)
    with pytest.raises(ValueError, match=r"method\.base"):
        Offline(diffusion=Diffusion(base=9))
