"""OML against the plain loop it stands for: fast weights of every episode changed one example at a time by torch.func.

That loop is in `plain_loop.py` and knows nothing of the dual form; autograd goes through every one of its steps.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from methods import pictures
from plain_loop import Weights, final_weights, outputs
from sbmcl import config
from sbmcl.config import Sine, Training
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.sine import SineSource
from sbmcl.episode import Episode, Examples
from sbmcl.experiment import Experiment
from sbmcl.heads import AngleHead, ClassHead, Head, VAEHead, VectorHead
from sbmcl.methods.oml import BLOCK, OML, OMLVAE, FastState, OMLReptile
from sbmcl.nets.fast import FastMLP, FastVAE, FastWeights
from sbmcl.nets.mlp import MLP
from sbmcl.train import new_learner, one_step

DIM, OUT, SHAPE = 6, 5, (2, 9, 4)  # of the codes, of the answers; episodes, stream, queries


def one_error(head: Head, prediction: Tensor, y: Tensor) -> Tensor:
    """Of a single example, written out."""
    if isinstance(head, ClassHead):
        return prediction.exp().sum().log() - prediction.gather(0, y.unsqueeze(0)).squeeze(0)
    if isinstance(head, AngleHead):
        return 1 - (prediction @ y) / prediction.norm().clamp_min(0.1)
    return (prediction - y).square().mean()


def plain(method: OML, episode: Episode, codes: Tensor | None = None, *, last: Weights | None = None) -> Tensor:
    """The queries' loss; `codes` are those of a classifier, `last` a last layer that replaces the method's own."""
    net = nn.Sequential(method.fast.linears[0], nn.ReLU(), method.fast.linears[1])
    decoder = method.decoder or nn.Identity()
    frozen = functional(decoder)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return one_error(method.head, frozen(output), y)

    seen, query = episode.stream, episode.query
    x = method.encoder(torch.cat([seen.x, query.x], dim=1).flatten(0, 1)).unflatten(0, (episode.size, -1))
    known, asked = x.split([len(seen), len(query)], dim=1)
    y, right = seen.targets, query.targets
    if codes is not None:
        y, right = codes.gather(1, y), codes.gather(1, right)
    start = dict(net.named_parameters()) | (last or {})
    found = outputs(net, final_weights(net, method.log_rate.exp(), known, y, loss, start), asked)
    answers = decoder(found.flatten(0, 1)).unflatten(0, found.shape[:2])
    return vmap(vmap(partial(one_error, method.head)))(answers, right).mean()


def functional(decoder: nn.Module) -> Callable[[Tensor], Tensor]:
    """Of one output, with the decoder's own weights and batch-norms that go by the averages they have now."""
    frozen = copy.deepcopy(decoder).eval()
    weights = dict(decoder.named_parameters())
    return lambda output: functional_call(frozen, weights, (output.unsqueeze(0),)).squeeze(0)


def drawn(head: Head, dtype: torch.dtype) -> Episode:
    rng = torch.Generator().manual_seed(1)
    b, stream, queries = SHAPE

    def part(n: int) -> Examples:
        x = torch.randn(b, n, 4, generator=rng).to(dtype)
        if isinstance(head, ClassHead):
            y = torch.randint(3, (b, n), generator=rng)
        else:
            y = torch.randn(b, n, 2 if isinstance(head, AngleHead) else OUT, generator=rng).to(dtype)
            y = F.normalize(y, dim=-1) if isinstance(head, AngleHead) else y
        return Examples(x, y, torch.zeros(b, n, dtype=torch.long))

    return Episode(part(stream), part(queries))


CASES: dict[str, Callable[[], tuple[Head, int, dict[str, Any]]]] = {
    "vector": lambda: (VectorHead(), OUT, {}),
    "angle": lambda: (AngleHead(), 2, {}),
    "classes": lambda: (ClassHead(), 7, {"classes": 7}),
    "through a decoder": lambda: (
        VectorHead(),
        3,
        {"decoder": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, OUT))},
    ),
    "through a decoder with batch-norms": lambda: (VectorHead(), 3, {"decoder": wandering(MLP(3, OUT, hidden=8))}),
}


def wandering(network: nn.Module) -> nn.Module:
    """Its batch-norms have seen other batches than those of the test."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean, std=0.5)  # pyright: ignore
            nn.init.uniform_(module.running_var, 0.5, 2.0)  # pyright: ignore
    return network


def built(case: str, dtype: torch.dtype, kind: type[OML] = OML, **more: Any) -> OML:
    torch.manual_seed(0)
    head, out, options = CASES[case]()
    encoder = MLP(4, DIM, hidden=8)
    method = kind(encoder, FastMLP(DIM, out, hidden=10), head, rate=0.3, **options, **more)
    for linear in method.fast.linears:
        nn.init.normal_(linear.bias, std=0.3)  # zero biases would hide what becomes of them
    return method.to(dtype).train()


def slopes(loss: Tensor, method: nn.Module) -> dict[str, Tensor]:
    names, weights = zip(*((n, w) for n, w in method.named_parameters() if w.requires_grad), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, weights, allow_unused=True), strict=True))


def off(one: Tensor, other: Tensor) -> float:
    """How far apart, relative to the largest number."""
    return ((one.double() - other.double()).abs().max() / other.double().abs().max()).item()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_dual_form_is_the_plain_loop(case: str, dtype: torch.dtype, tolerance: float) -> None:
    """The loss and its gradient by every parameter, through every step."""
    method = built(case, dtype)
    episode = drawn(method.head, dtype)
    codes = method._start(SHAPE[0], rng_for(0, "method", 0)).codes
    other = copy.deepcopy(method)  # batch-norms move
    mine, theirs = method.meta_loss(episode, rng=rng_for(0, "method", 0)).total, plain(other, episode, codes)
    assert off(mine, theirs) < tolerance
    found, right = slopes(mine, method), slopes(theirs, other)
    assert set(found) == set(right)
    for name, slope in right.items():
        assert slope.abs().max() > 1e-6, f"{name} matters"
        assert off(found[name], slope) < tolerance, name


def test_the_steps_matter_to_the_gradient() -> None:
    """What the test above compares would be easy otherwise: without second order every gradient is another one."""
    method = built("vector", torch.float64)
    episode = drawn(method.head, torch.float64)
    exact = slopes(method.meta_loss(episode).total, method)
    start, x = method._start(2, None), method.run(method.encoder, torch.cat([episode.stream.x, episode.query.x], 1))
    with torch.no_grad():
        steps = method._steps(start, (x[:, : len(episode.stream)],), episode.stream.targets, method.head)
    prediction = method._predict(method._collapsed(start, steps), (x[:, len(episode.stream) :],))
    first_order = slopes(method.head.loss(prediction, episode.query.targets), method)
    assert all(off(first_order[name], exact[name]) > 1e-2 for name in exact)


class PlainVAE(nn.Module):
    """The fast half of an auto-encoder: of a code beside noise, the mean and log-variance of u and what a decoder reads."""

    def __init__(self, fast: FastVAE):
        super().__init__()
        (self.a, self.b), (self.c, self.d) = fast.to_latent.linears, fast.from_latent.linears

    def forward(self, given: Tensor) -> Tensor:
        mean, log_variance = self.b(self.a(given[..., :DIM]).relu()).chunk(2, -1)
        u = mean + torch.exp(log_variance / 2) * given[..., DIM:]
        return torch.cat([mean, log_variance, self.d(self.c(u).relu())], -1)


def bits(output: Tensor, logits: Tensor, y: Tensor, weight: float) -> Tensor:
    """Of a pixel of one picture, the code's part times a weight; u has 3 dimensions."""
    mean, log_variance = output[:3], output[3:6]
    on = logits.sigmoid()
    nats = -torch.where(y > 0, on, 1 - on).log().sum()
    divergence = (mean**2 + log_variance.exp() - log_variance - 1).sum() / 2
    return (nats + weight * divergence) / (y.numel() * math.log(2))


def vae(kind: type[OMLVAE] = OMLVAE) -> OMLVAE:
    torch.manual_seed(0)
    decoder = nn.Sequential(nn.ReLU(), wandering(MLP(5, 16, hidden=8)), nn.Unflatten(1, (1, 4, 4)))
    encoder = nn.Sequential(nn.Flatten(), MLP(16, DIM, hidden=8))
    fast = FastVAE(DIM, 3, 5, hidden=7)
    for linear in (*fast.to_latent.linears, *fast.from_latent.linears):
        nn.init.normal_(linear.bias, std=0.3)
    return kind(encoder, fast, VAEHead(3, warmup=10), rate=0.3, decoder=decoder).double().train()


def binary() -> Episode:
    rng = torch.Generator().manual_seed(1)
    b, stream, queries = SHAPE
    x = (torch.rand(b, stream + queries, 1, 4, 4, generator=rng) < 0.4) * 2.0 - 1.0
    whole = Examples(x.double(), None, torch.zeros(b, stream + queries, dtype=torch.long))
    return Episode(whole[:stream], whole[stream:])


@pytest.mark.parametrize(("step", "weight"), [(3, 0.3), (None, 1.0)])
def test_an_auto_encoder_s_dual_form_is_the_plain_loop(step: int | None, weight: float) -> None:
    """Gradients through u, through the decoder and through all steps, while the code's weight rises."""
    method, episode = vae(), binary()
    other = copy.deepcopy(method)
    method.meta_step = step
    rng = rng_for(0, "method", 0)
    start = other._start(SHAPE[0], rng)
    (_, noise), _, _ = other._asked(start, episode.stream)
    (_, late), _ = other.head.ask(episode.query.x, episode.query.x, rng)
    x = other.encoder(torch.cat([episode.stream.x, episode.query.x], 1).flatten(0, 1)).unflatten(0, (SHAPE[0], -1))
    given = torch.cat([x, torch.cat([noise, late], 1)], -1)
    decoder, frozen = other.decoder, functional(other.decoder)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return bits(output, frozen(output[6:]), y, weight)

    net, rate = PlainVAE(other.fast), other.log_rate.exp()
    ends = final_weights(net, rate, given[:, : SHAPE[1]], episode.stream.x, loss)
    found = outputs(net, ends, given[:, SHAPE[1] :])
    logits = decoder(found[..., 6:].flatten(0, 1)).unflatten(0, found.shape[:2])
    theirs = vmap(vmap(partial(bits, weight=weight)))(found, logits, episode.query.x).mean()
    mine = method.meta_loss(episode, rng=rng_for(0, "method", 0)).total
    assert off(mine, theirs) < 1e-10
    found, right = slopes(mine, method), slopes(theirs, other)
    for name, slope in right.items():
        assert slope.abs().max() > 1e-8, f"{name} matters"
        assert off(found[name], slope) < 1e-9, name


@torch.no_grad()
def test_pictures_are_made_through_the_adapted_layers() -> None:
    method, episode = vae().eval(), binary()
    state = method.learn(method.init(2), episode.stream)
    drawn = method.sample(state, 5, rng=torch.Generator().manual_seed(0))
    assert drawn.shape == (2, 5, 1, 4, 4)
    u = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for b in range(2):
        third, fourth = ((layer.weight[b], layer.bias[b]) for layer in state.layers[2:])
        logits = method.decoder(F.linear(F.linear(u[b], *third).relu(), *fourth))
        torch.testing.assert_close(drawn[b], 2 * logits.sigmoid() - 1)
    assert not torch.equal(drawn, method.sample(method.init(2), 5, rng=torch.Generator().manual_seed(0)))


def test_every_example_of_every_stream_is_asked_with_noise_of_its_own() -> None:
    method, episode = vae().eval(), binary()
    state = method.init(2, rng=rng_for(0, "method", 0))
    (_, noise), _, after = method._asked(state, episode.stream)
    rows = noise.flatten(0, 1)
    assert all(not torch.equal(a, b) for k, a in enumerate(rows) for b in rows[:k])
    (_, later), _, _ = method._asked(after, episode.stream)
    assert not any(torch.equal(a, b) for a in rows for b in later.flatten(0, 1))
    again = method.init(2, rng=rng_for(0, "method", 1))
    assert not torch.equal(method._asked(again, episode.stream)[0][1], noise)


@torch.no_grad()
def test_streaming_in_blocks_is_the_plain_loop_and_keeps_a_fixed_size() -> None:
    method = built("vector", torch.float64).eval()
    rng = torch.Generator().manual_seed(1)
    n = 2 * BLOCK + 3
    x, y = (torch.randn(2, n, size, generator=rng, dtype=torch.float64) for size in (4, OUT))
    stream = Examples(x, y, torch.zeros(2, n, dtype=torch.long))
    end = method.learn(method.init(2), stream)
    short = method.learn(method.init(2), stream[:1])
    assert [layer.weight.shape for layer in end.layers] == [layer.weight.shape for layer in short.layers]
    with torch.enable_grad():
        right = plain(method, Episode(stream, stream[:4]))
    mine = method.head.loss(method.predict(end, stream[:4].x), stream[:4].targets)
    assert off(mine, right) < 1e-10


def test_a_prediction_scores_the_whole_vocabulary_in_the_order_of_the_labels() -> None:
    method = built("classes", torch.float64).eval()
    episode = drawn(method.head, torch.float64)
    state = method.learn(method.init(2, rng=rng_for(0, "method", 0)), episode.stream)
    assert state.codes is not None
    prediction = method.predict(state, episode.query.x)
    assert prediction.shape == (2, SHAPE[2], 7)
    x = method.run(method.encoder, episode.query.x)
    raw = method.answer(lambda k, x: state.layers[k](x), method.run, x)
    for b in range(2):
        for label, code in enumerate(state.codes[b].tolist()):
            assert torch.equal(prediction[b, :, label], raw[b, :, code])
    unused = replace(state, layers=(state.layers[0], _certain(state.layers[1], state.codes[:, 5])))
    assert method.score(unused, episode.query)["error"].eq(1).all(), "an unused code is a wrong answer"


def _certain(layer: FastWeights, code: Tensor) -> FastWeights:
    return replace(layer, bias=layer.bias.scatter(1, code.unsqueeze(-1), 1e6))


def test_streams_get_codes_of_their_own_and_unknown_labels_are_refused() -> None:
    method = built("classes", torch.float64).eval()
    state = method.init(2, rng=rng_for(0, "method", 0))
    assert state.codes is not None
    assert not torch.equal(state.codes[0], state.codes[1])
    many = Examples(torch.zeros(2, 1, 4), torch.full((2, 1), 7), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="vocabulary of 8 codes"):
        method.learn(state, replace(many, x=many.x.double()))


def test_a_redrawn_head_is_random_in_every_stream_and_is_not_trained() -> None:
    method = built("classes", torch.float64, redraw=True)
    episode = drawn(method.head, torch.float64)

    def start(index: int) -> FastState:
        return method._start(2, rng_for(0, "method", index))

    one, other = start(0), start(1)
    assert torch.equal(one.layers[0].weight, method.fast.linears[0].weight)
    assert not torch.equal(one.layers[1].weight, other.layers[1].weight)
    assert one.codes is not None
    assert torch.equal(one.codes[0], torch.arange(7)), "labels are their own outputs, as published"
    loss = method.meta_loss(episode, rng=rng_for(0, "method", 0)).total
    last = {"2.weight": one.layers[1].weight, "2.bias": one.layers[1].bias}
    theirs = plain(method, episode, one.codes, last=last)
    assert off(loss, theirs) < 1e-10
    found, right = slopes(loss, method), slopes(theirs, method)
    assert "fast.layers.1.weight" not in found
    assert all(off(found[name], right[name]) < 1e-10 for name in right)


@pytest.mark.parametrize("case", CASES)
def test_reptile_moves_the_start_to_the_mean_of_the_ends(case: str) -> None:
    method = built(case, torch.float64, OMLReptile, pull=0.25)
    episode, rng = drawn(method.head, torch.float64), rng_for(0, "method", 0)
    with torch.no_grad():
        _, end = copy.deepcopy(method)._asked_after(episode, rng)  # batch-norms move
    before = [weight.detach().clone() for weight in method.fast.parameters()]
    descent = torch.optim.SGD(method.plain_descent())
    method.meta_loss(episode, rng=rng_for(0, "method", 0)).total.backward()
    descent.step()
    ends = [part.mean(0) for layer in end.layers for part in (layer.weight, layer.bias)]
    for now, was, to in zip(method.fast.parameters(), before, ends, strict=True):
        assert not torch.allclose(was, to)
        torch.testing.assert_close(now.detach(), was + 0.25 * (to - was), rtol=0, atol=1e-12)


def test_reptiles_encoder_sees_the_queries_alone_and_its_rate_learns() -> None:
    method = built("vector", torch.float64, OMLReptile).eval()  # in training, batch-norm would mix stream and queries
    episode = drawn(method.head, torch.float64)
    losses = method.meta_loss(episode)
    found = slopes(losses.total, method)
    state = method.learn(method.init(2), episode.stream)
    prediction = method.predict(
        replace(state, layers=tuple(FastWeights(w.weight.detach(), w.bias.detach()) for w in state.layers)),
        episode.query.x,
    )
    right = slopes(method.head.loss(prediction, episode.query.targets), method)
    encoder = [name for name in found if name.startswith("encoder")]
    assert all(off(found[name], right[name]) < 1e-10 for name in encoder)
    assert off(losses.total, method.head.loss(prediction, episode.query.targets)) < 1e-12, "the pull adds no value"

    def loss_at(log_rate: float) -> Tensor:
        """The steps as they were, walked with another rate."""
        start = method._start(2, None)
        steps = method._steps(start, method.embed(episode.stream.x), episode.stream.targets, method.head)
        other = built("vector", torch.float64, OMLReptile).eval()
        nn.init.constant_(other.log_rate, log_rate)
        end = other._collapsed(start, steps)
        return method.head.loss(method.predict(end, episode.query.x), episode.query.targets)

    with torch.no_grad():
        here, small = method.log_rate.item(), 1e-5
        slope = (loss_at(here + small) - loss_at(here - small)) / (2 * small)
    torch.testing.assert_close(found["log_rate"], slope, rtol=1e-6, atol=1e-9)


def test_training_lowers_the_loss() -> None:
    """One episode, learned by heart and asked for what was learned."""
    for kind, options in ((OML, {}), (OMLReptile, {"pull": 0.5})):
        method = built("vector", torch.float32, kind, **options)
        episode = drawn(method.head, torch.float32)
        episode = Episode(episode.stream, episode.stream)
        own = {id(w) for group in method.plain_descent() for w in group["params"]}
        steps: list[torch.optim.Optimizer] = [
            torch.optim.Adam([w for w in method.parameters() if id(w) not in own], 3e-2)
        ]
        steps += [torch.optim.SGD(method.plain_descent())] if own else []
        losses = []
        for _ in range(15):
            loss = method.meta_loss(episode).total
            method.zero_grad()
            loss.backward()
            for step in steps:
                step.step()
            losses.append(loss.item())
        assert losses[-1] < 0.9 * losses[0], kind


def count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


@pytest.mark.parametrize("of", [config.OML, config.OMLReptile])
def test_the_published_sizes(of: type[config.OML]) -> None:
    """In millions, all weights and the fast ones."""
    sources = {
        SineSource(): (0.579, 0.288),
        pictures(size=32): (2.280, 0.776),
        pictures("rotation", size=32): (1.768, 0.264),
        pictures("completion", size=32): (2.419, 0.525),
    }
    for source, (size, fast) in sources.items():
        method = of().build(source)
        assert isinstance(method, OML)
        assert round(count(method) / 1e6, 3) == size
        assert round(count(method.fast) / 1e6, 3) == fast
        assert all(not linear.bias.any() for linear in method.fast.linears)


def test_the_published_size_of_an_auto_encoder() -> None:
    method = config.OMLReptileVAE().build(pictures("binarised", size=32))
    assert isinstance(method, OMLVAE)
    assert round(count(method) / 1e6, 3) == 3.732
    assert round(count(method.fast) / 1e6, 3) == 1.313
    assert method.decode.__func__ is OMLVAE.decode
    assert method.meta_loss.__func__ is OMLReptile.meta_loss


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"method\.rate"):
        config.OML(rate=0.0)
    with pytest.raises(ValueError, match=r"method\.width"):
        config.OML(width=0)
    with pytest.raises(ValueError, match=r"method\.classes"):
        config.OML(classes=1)
    with pytest.raises(ValueError, match="share"):
        config.OMLReptile(pull=1.5)
    with pytest.raises(ValueError, match="for classifiers"):
        config.OML(redraw=True).build(SineSource())
    with pytest.raises(ValueError, match="classes, vectors, angles or images"):
        config.OML().build(pictures("generation"))
    with pytest.raises(ValueError, match="task binarised, but"):
        config.OMLVAE().build(pictures("generation"))


def test_the_outer_loop_moves_reptiles_start_its_own_way() -> None:
    """Exactly by the pull and untouched by clipping, schedule and Adam; all else is Adam's."""
    training = Training(steps=2, episodes=2, shape=EpisodeShape(2, 2, 2), clip=1e-6, warmup=100)
    experiment = Experiment("r", "b", "oml-reptile", Sine(), config.OMLReptile(width=8, hidden=6, pull=0.5), training)
    learner = new_learner(experiment, SineSource(), torch.device("cpu"))
    method = learner.method
    assert isinstance(method, OMLReptile)
    before = {name: weight.detach().clone() for name, weight in method.named_parameters()}
    one_step(learner, experiment, SineSource(), torch.device("cpu"))
    for name, weight in method.named_parameters():
        moved = weight.detach() - before[name]
        assert moved.any() or name == "encoder.3.bias", f"{name}; a bias in front of a batch-norm has no slope"
        if name.startswith("fast"):
            assert weight.grad is not None
            torch.testing.assert_close(moved, -0.5 * weight.grad, rtol=0, atol=1e-6)
