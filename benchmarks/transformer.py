"""What the transformers' attention saves, against one dense sequence under one mask: the oracle of the tests.

    python benchmarks/transformer.py

prints ratios, both sides measured in turn within one run, in the CPU time of one thread; a busy machine moves both alike.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sbmcl.config import Transformer
from sbmcl.data.episodes import EpisodeShape, rng_for
from sbmcl.data.sine import SineSource
from sbmcl.episode import Episode

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from dense_transformer import dense_prediction  # pyright: ignore[reportMissingImports]

QUERIES = 100


def main() -> None:
    torch.set_num_threads(1)
    print("a meta-training step, 16 episodes of 10 tasks and 10 shots, against the dense form in float32")
    training_step("transformer", Transformer())
    training_step("linear transformer, heads 64 wide", Transformer("linear"))
    training_step("linear transformer, heads 512 wide", Transformer("linear", head_width=512))
    print(f"\nlearning a stream and answering {QUERIES} queries, one episode, both sides in float32")
    streams("linear transformer, heads 64 wide", Transformer("linear"))
    streams("linear transformer, heads 512 wide", Transformer("linear", head_width=512))


def training_step(name: str, config: Transformer) -> None:
    method, episode = built(config), drawn(10, batch=16)
    method.train()
    optimizer = torch.optim.AdamW(method.parameters(), 1e-4, fused=True)

    def step(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def parts(bf16: bool) -> None:
        method.bf16 = bf16
        step(method.meta_loss(episode).total)

    def dense() -> None:
        step(method.head.loss(dense_prediction(method, episode)[0], episode.query.targets))

    single, half, plain = seconds(lambda: parts(False), lambda: parts(True), dense)
    print(f"  {name:36} float32 {plain / single:5.2f} times as fast, bfloat16 {plain / half:5.2f}", flush=True)


@torch.no_grad()
def streams(name: str, config: Transformer) -> None:
    method = built(config).eval()
    lengths, times = (500, 1_000, 2_000, 4_000, 8_000), []
    for tokens in lengths:
        episode = drawn(tokens // 20, batch=1)

        def parts(episode: Episode = episode) -> None:
            method.predict(method.learn(method.init(1), episode.stream), episode.query.x)

        def dense(episode: Episode = episode) -> None:
            dense_prediction(method, episode)

        ratio = ""
        if tokens in (2_000, 8_000):
            mine, plain = seconds(parts, dense, repeats=1)
            ratio = f"{plain / mine:7.1f} times as fast as the dense form"
        else:
            (mine,) = seconds(parts)
        times.append(mine)
        print(f"  {name:36} {tokens:6,} tokens: {times[-1] / times[0]:6.2f} times the first {ratio}", flush=True)
    print(f"  {name:36} log-log slope {slope(lengths, times):.2f}")


def built(config: Transformer) -> Any:
    torch.manual_seed(0)
    return config.build(SineSource())


def drawn(shots: int, *, batch: int) -> Episode:
    return SineSource().draw(EpisodeShape(10, shots, QUERIES // 10), batch, rng_for(0, "benchmark", 0))


def seconds(*sides: Callable[[], None], repeats: int = 3) -> list[float]:
    """The least CPU time of each, taken in turn."""
    best = [math.inf] * len(sides)
    for _ in range(repeats):
        for i, side in enumerate(sides):
            began = time.process_time()
            side()
            best[i] = min(best[i], time.process_time() - began)
    return best


def slope(lengths: tuple[int, ...], times: list[float]) -> float:
    """Of the least-squares line through the logarithms."""
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (lengths, times))
    return ((x - x.mean()) @ (y - y.mean()) / (x - x.mean()).square().sum()).item()


if __name__ == "__main__":
    main()
