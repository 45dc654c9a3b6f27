"""What a training step of the generic SB-MCL costs, beside the same model in plain fp32, channels first, eager.

    python benchmarks/latent.py
    python benchmarks/latent.py --only ddpm --repeats 1

prints the seconds of a step (draw excluded; gradient and optimiser included) of 16 episodes, or 8 for the diffusion model,
and how many times faster it is. Both are timed in turn in one run, by the processor's own clock, and the fastest of each
counts, so that a busy machine disturbs neither more than the other. Pictures are glyphs; nothing is downloaded.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import tyro
from torch import Tensor, nn

from sbmcl.config import Glyphs, LatentCompletion, LatentDDPM, LatentRotation, LatentVAE, MethodConfig
from sbmcl.data.episodes import EpisodeShape, TaskName, rng_for
from sbmcl.episode import Episode
from sbmcl.methods import base
from sbmcl.methods.base import Method
from sbmcl.nets.conv import ConvDecoder
from sbmcl.train import use_bf16

MODELS: dict[str, tuple[MethodConfig, TaskName, int]] = {
    "vae": (LatentVAE(), "binarised", 16),
    "completion": (LatentCompletion(), "completion", 16),
    "rotation": (LatentRotation(), "rotation", 16),
    "ddpm": (LatentDDPM(), "generation", 8),
}


@contextmanager
def plain(method: Method[Any]) -> Iterator[None]:
    """fp32, and every picture and map channels first."""

    def first(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(x.contiguous() for x in inputs)

    layout, bf16 = base._channels_last, method.bf16
    maps = [module.grow for module in method.modules() if isinstance(module, ConvDecoder)]
    hooks = [part.register_forward_pre_hook(first) for part in maps]
    base._channels_last, method.bf16 = torch.Tensor.contiguous, False
    try:
        yield
    finally:
        base._channels_last, method.bf16 = layout, bf16
        for hook in hooks:
            hook.remove()


def seconds(method: Method[Any], optimizer: torch.optim.Optimizer, episode: Episode) -> float:
    began = time.process_time()
    optimizer.zero_grad()
    method.meta_loss(episode, rng=rng_for(0, "method", 0)).total.backward()
    optimizer.step()
    return time.process_time() - began


def main(*, only: tuple[str, ...] = tuple(MODELS), repeats: int = 3) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread\n{'':12}{'plain':>9}{'ours':>9}{'ratio':>8}")
    for name in only:
        config, task, episodes = MODELS[name]
        source = Glyphs(task=task).source("train")
        torch.manual_seed(0)
        method = config.build(source).train()
        method.bf16 = use_bf16("auto", method, torch.device("cpu"))
        optimizer = torch.optim.AdamW(method.parameters(), 1e-4, fused=True)
        episode = source.draw(EpisodeShape(), episodes, rng_for(0, "train", 0))
        ours, theirs = [], []
        for _ in range(repeats + 1):
            ours.append(seconds(method, optimizer, episode))
            with plain(method):
                theirs.append(seconds(method, optimizer, episode))
        fast, slow = min(ours[1:]), min(theirs[1:])  # the first ones choose kernels
        print(f"{name:12}{slow:8.2f}s{fast:8.2f}s{slow / fast:7.1f}x", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
