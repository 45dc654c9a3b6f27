"""Denoising diffusion: the noise in a picture is predicted, and pictures are drawn by taking noise away."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.beliefs.base import standard_normal
from sbmcl.heads.base import Head

NoiseIn = Callable[[Tensor, Tensor], Tensor]
"""The noise in pictures `b n c h w` that have been in the process for times `b n`, as a network sees it."""


@dataclass(frozen=True)
class DiffusionHead(Head):
    """A prediction is the noise in x_t; its squared error is loss and score (Ho et al. 2020, the simple loss).

        x_t = sqrt(a_t) x + sqrt(1 - a_t) e,    a_t = prod_{s <= t} (1 - beta_s),    t uniform on 0 .. steps-1

    beta rises linearly from 1e-4 to 0.02 over 1,000 steps. Fewer steps take proportionally larger ones, so that a picture
    is drowned in noise just as far in the end.
    """

    steps: int = 1_000

    metric = "noise_mse"

    def __post_init__(self) -> None:
        if self.steps < 21:
            raise ValueError(f"a diffusion of {self.steps} steps would need variances above 1; take at least 21")

    def betas(self, device: torch.device) -> Float[Tensor, "steps"]:
        scale = 1_000 / self.steps
        return torch.linspace(1e-4 * scale, 0.02 * scale, self.steps, dtype=torch.float64, device=device)

    def kept(self, device: torch.device) -> Float[Tensor, "steps"]:
        """a_t: the share of a picture's variance that is left at each time."""
        return (1 - self.betas(device)).cumprod(0)

    def noised(
        self, x: Float[Tensor, "b n c h w"], t: Int[Tensor, "b n"], noise: Float[Tensor, "b n c h w"]
    ) -> Float[Tensor, "b n c h w"]:
        kept = self.kept(x.device)[t][..., None, None, None]
        return kept.sqrt().to(x.dtype) * x + (1 - kept).sqrt().to(x.dtype) * noise

    def cleaned(
        self, x_t: Float[Tensor, "b n c h w"], t: Int[Tensor, "b n"], noise: Float[Tensor, "b n c h w"]
    ) -> Float[Tensor, "b n c h w"]:
        """`noised` taken back: the picture, if this is the noise in it."""
        kept = self.kept(x_t.device)[t][..., None, None, None]
        return (x_t - (1 - kept).sqrt().to(x_t.dtype) * noise) / kept.sqrt().to(x_t.dtype)

    def ask(
        self, x: Float[Tensor, "b n c h w"], y: Float[Tensor, "b n c h w"], rng: torch.Generator | None
    ) -> tuple[tuple[Tensor, ...], Float[Tensor, "b n c h w"]]:
        t = torch.randint(self.steps, y.shape[:2], generator=rng, device=y.device)
        noise = standard_normal(y.shape, y, rng)
        return (self.noised(y, t, noise), t), noise

    def loss(self, prediction: Float[Tensor, "b n c h w"], y: Float[Tensor, "b n c h w"]) -> Float[Tensor, ""]:
        return (prediction - y).square().mean()

    def scores(self, prediction: Float[Tensor, "b n c h w"], y: Float[Tensor, "b n c h w"]) -> dict[str, Tensor]:
        return {"noise_mse": (prediction - y).square().flatten(2).mean(-1)}

    def ancestral(
        self, noise_in: NoiseIn, start: Float[Tensor, "b n c h w"], rng: torch.Generator | None
    ) -> Float[Tensor, "b n c h w"]:
        """Step by step back from pure noise, fresh noise of variance beta_t after every step but the last (Ho et al. 2020)."""
        x, betas, kept = start, self.betas(start.device), self.kept(start.device)
        for t in reversed(range(self.steps)):
            share = (betas[t] / (1 - kept[t]).sqrt()).to(x.dtype)
            x = (x - share * noise_in(x, self._time(t, x))) / (1 - betas[t]).sqrt().to(x.dtype)
            if t > 0:
                x = x + betas[t].sqrt().to(x.dtype) * standard_normal(x.shape, x, rng)
        return x.clamp(-1, 1)

    def ddim(self, noise_in: NoiseIn, start: Float[Tensor, "b n c h w"], steps: int) -> Float[Tensor, "b n c h w"]:
        """A function of the noise alone, in a few long steps (Song et al. 2021, eta = 0).

        Their times are squares of evenly spaced numbers: steps are short near the picture, where details are settled.
        """
        if not 1 <= steps <= self.steps:
            raise ValueError(f"a diffusion of {self.steps} steps is undone in 1 to as many, but {steps} were asked for")
        spaced = torch.linspace((self.steps - 1) ** 0.5, 0, steps).square().round().long()
        times = spaced.unique().flip(0).tolist()
        x = start
        for t, later in zip(times, [*times[1:], None], strict=True):
            noise = noise_in(x, self._time(t, x))
            x = self.cleaned(x, self._time(t, x), noise)
            if later is not None:
                x = self.noised(x, self._time(later, x), noise)
        return x.clamp(-1, 1)

    def _time(self, t: int, x: Tensor) -> Int[Tensor, "b n"]:
        return torch.full(x.shape[:2], t, device=x.device)
