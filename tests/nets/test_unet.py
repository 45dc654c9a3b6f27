"""The U-Net's plan, and its parts against formulas written out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sbmcl.nets.unet import Attention, Residual, UNet, sinusoids


def small() -> UNet:
    torch.manual_seed(0)
    return UNet(1, base=8, multipliers=(1, 2), groups=4).double().eval()


def test_the_published_plan() -> None:
    unet = UNet(1)
    assert round(sum(weight.numel() for weight in unet.parameters()) / 1e6, 3) == 8.685
    ups = [block.first.in_channels for level in unet.up for block in level]  # pyright: ignore
    assert ups == [256, 256, 256, 256, 256, 256, 256, 256, 192, 192, 128, 128]
    assert unet.bottleneck(32, 32) == (128, 4, 4)
    bottom, skips, time = unet.eval().descend(torch.randn(2, 1, 32, 32), torch.tensor([0, 999]))
    assert bottom.shape == (2, 128, 4, 4)
    assert time.shape == (2, 256)
    sizes = [(skip.shape[1], skip.shape[2]) for skip in skips]
    assert sizes == [(64, 32)] * 3 + [(64, 16)] + [(128, 16)] * 2 + [(128, 8)] * 3 + [(128, 4)] * 3
    assert sum(isinstance(module, Attention) for module in unet.modules()) == 2


def test_z_is_added_at_the_bottleneck_and_nowhere_else() -> None:
    unet = small()
    x, t, z = torch.randn(3, 1, 8, 8).double(), torch.tensor([0, 5, 9]), torch.randn(3, 16 * 4 * 4).double()
    bottom, skips, time = unet.descend(x, t)
    expected = unet.ascend(unet.middle(bottom + z.view(3, 16, 4, 4), time), skips, time)
    torch.testing.assert_close(unet(x, t, z), expected)
    torch.testing.assert_close(unet(x, t, 0 * z), unet(x, t))
    assert not torch.allclose(unet(x, t, z), unet(x, t))


def test_time_reaches_every_residual_block() -> None:
    unet = small()
    x, t = torch.randn(2, 1, 8, 8).double(), torch.tensor([3, 8])
    unet(x, t).sum().backward()
    blocks = [module for module in unet.modules() if isinstance(module, Residual)]
    assert len(blocks) == 2 * 2 + 2 + 2 * 3
    assert all(block.time.weight.grad is not None and block.time.weight.grad.any() for block in blocks)


def test_a_residual_block_by_hand() -> None:
    torch.manual_seed(0)
    block = Residual(4, 8, 5, groups=2, dropout=0.5).double().eval()
    x, time = torch.randn(3, 4, 6, 6).double(), torch.randn(3, 5).double()

    def norm(h: torch.Tensor, module: nn.GroupNorm) -> torch.Tensor:
        parts = h.reshape(3, 2, -1)
        spread = (parts.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        flat = ((parts - parts.mean(-1, keepdim=True)) / spread).view_as(h)
        return flat * module.weight[:, None, None] + module.bias[:, None, None]

    h = F.conv2d(F.relu(norm(x, block.norm)), block.first.weight, block.first.bias, padding=1)
    h = h + (time @ block.time.weight.T + block.time.bias)[:, :, None, None]
    h = F.conv2d(F.relu(norm(h, block.norm_again)), block.second.weight, block.second.bias, padding=1)
    shortcut = block.shortcut
    assert isinstance(shortcut, nn.Conv2d)
    expected = h + torch.einsum("oi,nihw->nohw", shortcut.weight[:, :, 0, 0], x) + shortcut.bias[:, None, None]  # pyright: ignore
    torch.testing.assert_close(block(x, time), expected)


def test_attention_by_hand() -> None:
    torch.manual_seed(0)
    attention = Attention(4, 2).double()
    x = torch.randn(2, 4, 3, 5).double()
    q, k, v = attention.qkv(attention.norm(x)).view(2, 3, 4, 15).unbind(1)
    weights = (torch.einsum("nci,ncj->nij", q, k) / 2).softmax(-1)
    expected = x + attention.out(torch.einsum("nij,ncj->nci", weights, v).reshape(2, 4, 3, 5))
    torch.testing.assert_close(attention(x), expected)


def test_times_are_told_apart_by_sines_then_cosines() -> None:
    code = sinusoids(torch.tensor([0, 7]), 64)
    assert code[0].tolist() == [0.0] * 32 + [1.0] * 32
    for i in (0, 1, 31):
        angle = 7 / 10_000 ** (i / 32)
        assert code[1, i].item() == pytest.approx(math.sin(angle), rel=1e-4)
        assert code[1, 32 + i].item() == pytest.approx(math.cos(angle), rel=1e-4)


def test_pictures_that_cannot_be_halved_so_often_are_refused() -> None:
    with pytest.raises(ValueError, match="halves a picture 3 times, but these are 20 x 32"):
        UNet(1).bottleneck(20, 32)
