"""The convolutional decoder against its layers written out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sbmcl.nets.conv import ConvDecoder


@pytest.mark.parametrize("final", ["none", "tanh"])
def test_the_decoder_is_what_its_layers_say(final: str) -> None:
    torch.manual_seed(0)
    net = ConvDecoder(7, 3, 16, 32, final).double().eval()  # pyright: ignore[reportArgumentType]
    for module in net.modules():  # averages that do something
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean = 0.1 * torch.randn_like(module.running_mean)  # pyright: ignore
    x = torch.randn(4, 7, dtype=torch.float64)
    linear, norm, _ = net.seed
    assert isinstance(linear, nn.Linear)
    h = F.relu(norm(x @ linear.weight.T)).view(4, 1, 2, 256).permute(0, 3, 1, 2).contiguous()
    convs = [m for m in net.grow if isinstance(m, nn.Conv2d)]
    norms = [m for m in net.grow if isinstance(m, nn.BatchNorm2d)]
    assert [conv.out_channels for conv in convs] == [128, 64, 32, 3]
    for i, conv in enumerate(convs):
        h = F.conv2d(h.repeat_interleave(2, -1).repeat_interleave(2, -2), conv.weight, padding=1)
        if i < len(norms):
            h = norms[i](h).relu()
    torch.testing.assert_close(net(x), h.tanh() if final == "tanh" else h)
    assert net(x).shape == (4, 3, 16, 32)


def test_channels_stay_last_in_memory() -> None:
    """From the first map to the picture, so that no convolution has to turn its input round."""
    net, laid_out = ConvDecoder(7, 1, 32, 32), []
    for module in net.grow:
        module.register_forward_pre_hook(
            lambda _, inputs: laid_out.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
        )
    net(torch.randn(3, 7))
    assert len(laid_out) == 14
    assert all(laid_out)


def test_sides_that_cannot_be_doubled_up_to_are_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 16, but these are 24 x 32"):
        ConvDecoder(7, 1, 24, 32)
