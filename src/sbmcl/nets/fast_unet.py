"""A U-Net that adapts at its bottleneck: the linear layers of its middle blocks are fast.

A convolution is a linear layer that is applied to every patch of a map, so its steps of gradient descent have the dual form
of `nets.fast` too, with a row for each patch.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sbmcl.nets.fast import FastWeights, Layer
from sbmcl.nets.unet import Attention, Residual, UNet

Maps = Float[Tensor, "b n c h w"]


class FastUNet(nn.Module):
    """In each middle block in turn three layers: of the time's code (Xavier-normal, biases zero), and two convolutions."""

    def __init__(self, unet: UNet):
        super().__init__()
        self.unet = unet
        for block in self.blocks:
            nn.init.xavier_normal_(block.time.weight)
            nn.init.zeros_(block.time.bias)

    @property
    def blocks(self) -> list[Residual]:
        return [part for part in self.unet.middle if isinstance(part, Residual)]

    @property
    def attentions(self) -> list[Attention]:
        return [part for part in self.unet.middle if isinstance(part, Attention)]

    def weights(self) -> list[nn.Parameter]:
        """What `start` is made of."""
        layers = [layer for block in self.blocks for layer in (block.time, block.first, block.second)]
        return [weight for layer in layers for weight in layer.parameters()]

    def start(self) -> tuple[FastWeights, ...]:
        """A convolution's weights as a matrix, from patches to channels."""
        weights = self.weights()
        return tuple(FastWeights(w.flatten(1), bias) for w, bias in zip(weights[::2], weights[1::2], strict=True))

    def fixed_weights(self) -> list[nn.Parameter]:
        """Of all that comes after the first fast layer, but for the fast ones."""
        after = (self.unet.middle, self.unet.up, self.unet.larger, self.unet.out)
        fast = {id(weight) for weight in self.weights()}
        return [weight for part in after for weight in part.parameters() if id(weight) not in fast]

    def through(
        self,
        layer: Layer,
        run: Callable[..., Any],
        x: Float[Tensor, "b n _"],
        time: Float[Tensor, "b n e"],
        bottom: Maps,
        *skips: Float[Tensor, "b n _ _ _"],
    ) -> Float[Tensor, "b n o p q"]:
        """From the bottleneck to the picture; `x` is what layer 0 reads (the code of the time too), `run` runs what is fixed."""
        h = bottom
        for i, (block, attention) in enumerate(zip(self.blocks, self.attentions, strict=True)):
            inner = convolve(layer, 3 * i + 1, run(lambda h, block=block: block.norm(h).relu(), h))
            inner = inner + layer(3 * i, time if i else x)[..., None, None]
            inner = run(lambda h, block=block: block.dropout(block.norm_again(h).relu()), inner)
            with sdpa_kernel(SDPBackend.MATH):  # the fused kernels can be differentiated only once
                h = run(attention, h + convolve(layer, 3 * i + 2, inner))
        return run(lambda h, time, *skips: self.unet.ascend(h, list(skips), time), h, time, *skips)


def convolve(layer: Layer, k: int, maps: Maps) -> Float[Tensor, "b n o h w"]:
    """3 x 3 with a padding of 1, by a layer that reads patches."""
    b, n, _, height, width = maps.shape
    patches = F.unfold(maps.flatten(0, 1), 3, padding=1).mT.unflatten(0, (b, n))
    out = layer(k, patches.flatten(1, 2)).unflatten(1, patches.shape[1:3])
    return out.mT.unflatten(-1, (height, width))
