"""The convolutional encoder that every image benchmark shares (SPEC 3.1). It knows images, not episodes."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

CHANNELS = (32, 64, 128, 256, 256)


class ConvEncoder(nn.Sequential):
    """Five 3x3 convolutions (stride 1, then 2), each with batch-norm and ReLU, then one linear layer."""

    def __init__(self, channels: int, height: int, width: int, out: int, final: Literal["none", "relu"] = "none"):
        super().__init__()
        inputs = (channels, *CHANNELS[:-1])
        for i, (c_in, c_out) in enumerate(zip(inputs, CHANNELS, strict=True)):
            self.append(nn.Conv2d(c_in, c_out, 3, stride=1 if i == 0 else 2, padding=1, bias=False))
            self.append(nn.BatchNorm2d(c_out))
            self.append(nn.ReLU())
        self.append(nn.Flatten())
        self.append(nn.Linear(CHANNELS[-1] * -(-height // 16) * -(-width // 16), out))
        if final == "relu":
            self.append(nn.BatchNorm1d(out))
            self.append(nn.ReLU())

    def forward(self, input: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return super().forward(input)
