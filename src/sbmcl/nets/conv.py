"""The convolutional encoder and decoder that the image benchmarks share. They know images, not episodes."""

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

CHANNELS = (32, 64, 128, 256, 256)


class ConvEncoder(nn.Sequential):
    """Five 3x3 convolutions (stride 1, then 2), each with batch-norm and ReLU, then one linear layer.

    With `out` as many as the flattened maps have values, `bare` leaves the linear layer out.
    """

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        out: int,
        final: Literal["none", "relu"] = "none",
        *,
        bare: bool = False,
    ):
        super().__init__()
        inputs = (channels, *CHANNELS[:-1])
        for i, (c_in, c_out) in enumerate(zip(inputs, CHANNELS, strict=True)):
            self.append(nn.Conv2d(c_in, c_out, 3, stride=1 if i == 0 else 2, padding=1, bias=False))
            self.append(nn.BatchNorm2d(c_out))
            self.append(nn.ReLU())
        self.append(nn.Flatten())
        values = CHANNELS[-1] * -(-height // 16) * -(-width // 16)
        if not (bare and out == values):
            self.append(nn.Linear(values, out))
        if final == "relu":
            self.append(nn.BatchNorm1d(out))
            self.append(nn.ReLU())

    def forward(self, input: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return super().forward(input)


class ConvDecoder(nn.Module):
    """One linear layer makes a small map; doubling and a 3x3 convolution, four times over, make a picture of it."""

    def __init__(self, inputs: int, channels: int, height: int, width: int, final: Literal["none", "tanh"] = "none"):
        super().__init__()
        if height % 16 or width % 16:
            raise ValueError(
                f"the decoder draws pictures whose sides are multiples of 16, but these are {height} x {width}"
            )
        widths = CHANNELS[3::-1]
        self.small = (height // 16, width // 16, widths[0])
        units = torch.Size(self.small).numel()
        self.seed = nn.Sequential(nn.Linear(inputs, units, bias=False), nn.BatchNorm1d(units), nn.ReLU())
        self.grow = nn.Sequential()
        for c_in, c_out in pairwise(widths):
            self.grow.append(nn.Upsample(scale_factor=2))
            self.grow.append(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False))
            self.grow.append(nn.BatchNorm2d(c_out))
            self.grow.append(nn.ReLU())
        self.grow.append(nn.Upsample(scale_factor=2))
        self.grow.append(nn.Conv2d(widths[-1], channels, 3, padding=1, bias=False))
        if final == "tanh":
            self.grow.append(nn.Tanh())

    def forward(self, input: Float[Tensor, "n d"]) -> Float[Tensor, "n c h w"]:
        small = self.seed(input).unflatten(1, self.small)
        return self.grow(small.permute(0, 3, 1, 2))  # channels last in memory, as convolutions like it
