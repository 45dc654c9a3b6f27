"""Ways for a network to read several inputs: how z, or an answer y, gets in. They know tensors, not episodes."""

import torch
from torch import Tensor, nn


class Joined(nn.Module):
    """A network that reads its inputs side by side, concatenated along `dim`."""

    def __init__(self, network: nn.Module, dim: int = -1):
        super().__init__()
        self.network = network
        self.dim = dim

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.network(torch.cat(inputs, self.dim))


class PairReader(nn.Module):
    """A network that reads codes of x beside its own embedding of y."""

    def __init__(self, embed: nn.Module, network: nn.Module):
        super().__init__()
        self.embed = embed
        self.network = network

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.network(torch.cat([x, self.embed(y)], -1))
