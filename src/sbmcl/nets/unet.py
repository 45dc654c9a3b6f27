"""The U-Net that predicts the noise in a picture (Ho et al. 2020). It knows pictures and times, not episodes.

Down, middle and up can be called one by one: whatever is to adapt at the bottleneck takes the place of the middle.
"""

import math
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

BLOCKS = 2  # residual blocks a level on the way down; one more on the way up, for the skip that halving adds


class Descent(NamedTuple):
    """The way down: the bottleneck map, the maps passed on to the way up, and the code of the time."""

    bottom: Float[Tensor, "n c h w"]
    skips: list[Tensor]
    time: Float[Tensor, "n e"]


class UNet(nn.Module):
    """Levels of `base` times `multipliers` channels, each of half the resolution; the published size is the default.

    What is `added` (z) goes onto the bottleneck map just before the middle blocks, and not onto the skips.
    """

    def __init__(
        self,
        channels: int,
        *,
        base: int = 64,
        multipliers: tuple[int, ...] = (1, 2, 2, 2),
        groups: int = 32,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.base, code = base, 4 * base
        widths = [base * multiplier for multiplier in multipliers]

        def residual(c_in: int, c_out: int) -> Residual:
            return Residual(c_in, c_out, code, groups=groups, dropout=dropout)

        self.time = nn.Sequential(nn.Linear(base, code), nn.SiLU(), nn.Linear(code, code), nn.ReLU())
        self.stem = nn.Conv2d(channels, base, 3, padding=1)
        self.down = nn.ModuleList()
        self.smaller = nn.ModuleList()
        skips, width = [base], base
        for level, wide in enumerate(widths):
            self.smaller.append(nn.Conv2d(width, width, 3, stride=2, padding=1) if level else nn.Identity())
            skips += [width] * (level > 0) + [wide] * BLOCKS
            self.down.append(nn.ModuleList(residual(width if i == 0 else wide, wide) for i in range(BLOCKS)))
            width = wide
        self.middle = Middle(part for _ in range(2) for part in (residual(width, width), Attention(width, groups)))
        self.up = nn.ModuleList()
        self.larger = nn.ModuleList()
        for level, wide in reversed(list(enumerate(widths))):
            blocks = nn.ModuleList()
            for _ in range(BLOCKS + 1):
                blocks.append(residual(width + skips.pop(), wide))
                width = wide
            self.up.append(blocks)
            doubled = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1))
            self.larger.append(doubled if level else nn.Identity())
        self.out = nn.Sequential(nn.GroupNorm(groups, width), nn.ReLU(), nn.Conv2d(width, channels, 3, padding=1))

    def forward(
        self, x: Float[Tensor, "n c h w"], t: Int[Tensor, "n"], *added: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n c h w"]:
        bottom, skips, time = self.descend(x, t)
        for z in added:
            bottom = bottom + z.to(bottom.dtype).view(bottom.shape)
        return self.ascend(self.middle(bottom, time), skips, time)

    def descend(self, x: Float[Tensor, "n c h w"], t: Int[Tensor, "n"]) -> Descent:
        time = self.time(sinusoids(t, self.base).to(x.dtype))
        h = self.stem(x)
        skips = [h]
        for level, (smaller, blocks) in enumerate(zip(self.smaller, self.down, strict=True)):
            h = smaller(h)
            if level:
                skips.append(h)
            for block in cast(nn.ModuleList, blocks):
                h = block(h, time)
                skips.append(h)
        return Descent(h, skips, time)

    def ascend(
        self, bottom: Float[Tensor, "n c h w"], skips: list[Tensor], time: Float[Tensor, "n e"]
    ) -> Float[Tensor, "n o p q"]:
        h, left = bottom, list(skips)
        for blocks, larger in zip(self.up, self.larger, strict=True):
            for block in cast(nn.ModuleList, blocks):
                h = block(torch.cat([h, left.pop()], 1), time)
            h = larger(h)
        return self.out(h)

    def bottleneck(self, height: int, width: int) -> tuple[int, int, int]:
        """Channels, height and width of the bottleneck map of a picture; its number of elements is that of z."""
        step = 2 ** (len(self.down) - 1)
        if height % step or width % step:
            raise ValueError(
                f"this U-Net halves a picture {len(self.down) - 1} times, but these are {height} x {width}"
            )
        last = cast(Residual, cast(nn.ModuleList, self.down[-1])[-1])
        return last.second.out_channels, height // step, width // step


class Residual(nn.Module):
    """Two convolutions with the code of the time added in between, beside a shortcut."""

    def __init__(self, c_in: int, c_out: int, code: int, *, groups: int, dropout: float):
        super().__init__()
        self.norm = nn.GroupNorm(groups, c_in)
        self.first = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.time = nn.Linear(code, c_out)
        self.norm_again = nn.GroupNorm(groups, c_out)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.shortcut = nn.Identity() if c_in == c_out else nn.Conv2d(c_in, c_out, 1)

    def forward(self, x: Float[Tensor, "n i h w"], time: Float[Tensor, "n e"]) -> Float[Tensor, "n o h w"]:
        h = self.first(self.norm(x).relu())
        h = h + self.time(time)[:, :, None, None]
        return self.shortcut(x) + self.second(self.dropout(self.norm_again(h).relu()))


class Attention(nn.Module):
    """Every pixel attends to every pixel, one head, beside a shortcut."""

    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, -1)
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(seen.transpose(1, 2).unflatten(2, x.shape[2:]))


class Middle(nn.ModuleList):
    """The blocks at the bottleneck: a residual block and attention, twice."""

    def forward(self, h: Float[Tensor, "n c h w"], time: Float[Tensor, "n e"]) -> Float[Tensor, "n c h w"]:
        for part in self:
            h = part(h, time) if isinstance(part, Residual) else part(h)
        return h


def sinusoids(t: Int[Tensor, "n"], dim: int, base: float = 10_000.0) -> Float[Tensor, "n d"]:
    """The sines, then the cosines, of t at dim/2 frequencies from 1 down to nearly 1/base (Vaswani et al. 2017)."""
    half = dim // 2
    rate = torch.exp(-math.log(base) / half * torch.arange(half, device=t.device))
    angle = t.unsqueeze(-1) * rate
    return torch.cat([angle.sin(), angle.cos()], -1)
