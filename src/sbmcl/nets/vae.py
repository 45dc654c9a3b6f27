"""A variational auto-encoder with room for a condition. It knows codes and pictures, not episodes."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmcl.state import state


@state
class Reconstruction:
    """A picture's latent u ~ N(mean, exp(log_variance)), and the picture that one draw of it gives."""

    logits: Float[Tensor, "*b c h w"]  # of a white pixel
    mean: Float[Tensor, "*b u"]
    log_variance: Float[Tensor, "*b u"]


class VAE(nn.Module):
    """`infer` reads a picture or the code of one, `decoder` the latent u; what is `given` (z, or nothing) is read by both.

    The noise that u is drawn with is an input, so that the network itself is a function.
    """

    def __init__(self, infer: nn.Module, decoder: nn.Module):
        super().__init__()
        self.infer = infer
        self.decoder = decoder

    def forward(
        self, code: Float[Tensor, "n *d"], noise: Float[Tensor, "n u"], *given: Float[Tensor, "n _"]
    ) -> Reconstruction:
        mean, log_variance = self.infer(torch.cat([code, *given], -1)).to(noise.dtype).chunk(2, -1)
        return Reconstruction(self.decode(mean + (log_variance / 2).exp() * noise, *given), mean, log_variance)

    def decode(self, u: Float[Tensor, "n u"], *given: Float[Tensor, "n _"]) -> Float[Tensor, "n c h w"]:
        return self.decoder(torch.cat([*given, u], -1))
