"""The U-Net's fast weights against the plain U-Net, and their steps against the loop that changes its weights one by one."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from methods import pictures
from plain_loop import final_weights, outputs
from sbmcl import config
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.episode import Episode
from sbmcl.methods.oml import OMLDDPM, OMLReptileDDPM
from sbmcl.nets.fast import FastWeights
from sbmcl.nets.fast_unet import FastUNet, convolve
from sbmcl.nets.unet import UNet
from sbmcl.state import map_tensors

FAST = [
    f"middle.{block}.{layer}.{part}"
    for block in (0, 2)
    for layer in ("time", "first", "second")
    for part in ("weight", "bias")
]


def drawn() -> tuple[OMLDDPM, Episode]:
    """Two streams of six pictures of 16 x 16."""
    torch.manual_seed(0)
    source = pictures("generation")
    method = config.OMLDDPM(rate=0.5, base=4, levels=2, groups=2, steps=50, dropout=0.0).build(source)
    assert isinstance(method, OMLDDPM)
    for bias in method.fast.weights()[1::2]:
        nn.init.normal_(bias, std=0.3)
    episode = source.draw(EpisodeShape(3, 2, 1), 2, torch.Generator().manual_seed(1))
    return method.double().train(), map_tensors(lambda t: t.double() if t.is_floating_point() else t, episode)


def test_a_convolution_is_a_linear_layer_on_patches() -> None:
    torch.manual_seed(0)
    conv, maps = nn.Conv2d(3, 5, 3, padding=1), torch.randn(2, 4, 3, 6, 7)
    weights = FastWeights(conv.weight.flatten(1), conv.bias)  # pyright: ignore
    torch.testing.assert_close(convolve(lambda _, x: weights(x), 0, maps).flatten(0, 1), conv(maps.flatten(0, 1)))


def test_at_the_start_it_is_the_u_net() -> None:
    method, episode = drawn()
    (x_t, t), _, state = method._asked(method.init(2), episode.stream)
    answer = method._predict(state, method.embed(x_t, t))
    torch.testing.assert_close(answer.flatten(0, 1), method.fast.unet(x_t.flatten(0, 1), t.flatten()))


class Packed(nn.Module):
    """A U-Net that reads a picture and its time from one vector, or from each of several."""

    def __init__(self, unet: UNet):
        super().__init__()
        self.unet = unet

    def forward(self, given: Tensor) -> Tensor:
        flat = given.reshape(-1, 257)
        return self.unet(flat[:, :-1].view(-1, 1, 16, 16), flat[:, -1].long()).view(*given.shape[:-1], 1, 16, 16)


def test_the_dual_form_is_the_plain_loop() -> None:
    """The loss and its gradient by every parameter: fast, before and after, and the rate."""
    method, episode = drawn()
    other = copy.deepcopy(method)
    rng = rng_for(0, "method", 0)
    (x_t, t), noise, _ = other._asked(other._start(2, rng), episode.stream)
    (late, when), right = other.head.ask(episode.query.x, episode.query.x, rng)
    net = Packed(other.fast.unet)
    start = {f"unet.{name}": dict(other.fast.unet.named_parameters())[name] for name in FAST}

    def packed(x: Tensor, t: Tensor) -> Tensor:
        return torch.cat([x.flatten(2), t.unsqueeze(-1).double()], -1)

    ends = final_weights(net, other.log_rate.exp(), packed(x_t, t), noise, F.mse_loss, start)
    theirs = vmap(vmap(F.mse_loss))(outputs(net, ends, packed(late, when)), right).mean()
    mine = method.meta_loss(episode, rng=rng_for(0, "method", 0)).total
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=0)
    names, weights = zip(*method.named_parameters(), strict=True)
    found = torch.autograd.grad(mine, weights)
    expected = torch.autograd.grad(theirs, [dict(other.named_parameters())[name] for name in names])
    for name, one, slope in zip(names, found, expected, strict=True):
        assert (one - slope).abs().max() < 1e-8 * max(slope.abs().max().item(), 1e-6), name
    still = method.meta_loss(replace(episode, stream=episode.stream[:0]), rng=rng_for(0, "method", 0)).total
    assert abs(still - mine) > 1e-4, "the steps matter"


def test_in_inner_steps_nothing_is_dropped() -> None:
    """And in queries it is, while meta-training."""
    method, episode = drawn()
    method.fast.unet.middle[0].dropout.p = 0.5  # pyright: ignore
    rng = [rng_for(0, "method", 0) for _ in range(3)]
    (_, one), (_, other) = (method._asked_after(episode, rng[i]) for i in range(2))
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(one.layers, other.layers, strict=True))
    assert method.meta_loss(episode, rng=rng_for(0, "method", 0)).total != method.meta_loss(episode, rng=rng[2]).total


@torch.no_grad()
def test_pictures_are_drawn_through_the_adapted_weights() -> None:
    method, episode = drawn()
    state = method.eval().learn(method.init(2), episode.stream)
    made = method.sample(state, 3, rng=torch.Generator().manual_seed(0), steps=3)
    start = torch.randn(2, 3, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for b in range(2):
        unet = copy.deepcopy(method.fast.unet)
        names = dict(unet.named_parameters())
        for k, layer in enumerate(state.layers):
            names[FAST[2 * k]].copy_(layer.weight[b].view_as(names[FAST[2 * k]]))
            names[FAST[2 * k + 1]].copy_(layer.bias[b])
        right = method.head.ddim(lambda x, t, unet=unet: unet(x[0], t[0])[None], start[b : b + 1], 3)
        torch.testing.assert_close(made[b : b + 1], right)
    assert not torch.equal(made, method.sample(method.init(2), 3, rng=torch.Generator().manual_seed(0), steps=3))


def test_the_published_size() -> None:
    for of, kind in ((config.OMLDDPM(), OMLDDPM), (config.OMLReptileDDPM(), OMLReptileDDPM)):
        assert of.rate == 0.001
        method = of.build(pictures("generation", size=32))
        assert isinstance(method, kind)
        fast = method.fast
        assert isinstance(fast, FastUNet)
        assert sum(weight.numel() for weight in fast.weights()) == 656_128
        assert round(sum(weight.numel() for weight in fast.parameters()) / 1e6, 3) == 8.685


def test_what_cannot_be_diffused_is_refused() -> None:
    with pytest.raises(ValueError, match="halves a picture 3 times"):
        config.OMLDDPM().build(pictures("generation", size=20))
    with pytest.raises(ValueError, match="task generation, but"):
        config.OMLDDPM().build(pictures("binarised"))
    with pytest.raises(ValueError, match=r"method\.rate"):
        config.OMLReptileDDPM(rate=0.0)
