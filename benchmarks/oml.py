"""What the dual form of OML's inner loop saves, against the plain loop over matrices of every episode's own: the oracle
of the tests.

    python benchmarks/oml.py

prints ratios for the forward and backward pass of 16 episodes of 100 examples, 512 wide: of the CPU time of one thread,
both sides measured in turn within one run, and of the peak memory, each side in a process of its own.
"""

import math
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from sbmcl.nets.fast import FastMLP, Layer, descend

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from plain_loop import final_weights, outputs  # pyright: ignore[reportMissingImports]

EPISODES, EXAMPLES, WIDTH, OUT = 16, 100, 512, 50

Side = Literal["dual", "plain"]
SIDES: tuple[Side, Side] = ("dual", "plain")


def main(repeats: int = 2) -> None:
    torch.set_num_threads(1)
    best: dict[Side, float] = dict.fromkeys(SIDES, math.inf)
    for side in SIDES:
        step(side, *drawn(5))
    given = drawn(EXAMPLES)
    for _ in range(repeats):
        for side in SIDES:
            began = time.process_time()
            step(side, *given)
            best[side] = min(best[side], time.process_time() - began)
    print(f"{EPISODES} episodes of {EXAMPLES} examples, {WIDTH} wide, {OUT} outputs, forward and backward")
    print(f"  dual form {best['plain'] / best['dual']:6.1f} times as fast as the plain loop", flush=True)
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        dual, plain = (pool.apply(peak, (side,)) for side in SIDES)
    print(f"  dual form {dual / plain:6.3f} of the plain loop's peak memory")


def drawn(examples: int) -> tuple[FastMLP, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, queries = (torch.randn(EPISODES, examples, WIDTH).relu() for _ in range(2))
    return FastMLP(WIDTH, OUT), x.requires_grad_(), torch.randn(EPISODES, examples, OUT), queries


def step(side: Side, fast: FastMLP, x: Tensor, y: Tensor, queries: Tensor) -> None:
    rate = torch.tensor(0.03, requires_grad=True)
    found = dual(fast, rate, x, y, queries) if side == "dual" else plain(fast, rate, x, y, queries)
    torch.autograd.grad(found.square().mean(), [x, rate, *fast.parameters()])


def dual(fast: FastMLP, rate: Tensor, x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
    def loss(layer: Layer, x: Tensor, y: Tensor) -> Tensor:
        return (fast.through(layer, x) - y).square().mean() * len(x)

    start = fast.start()
    steps = descend(loss, start, rate, x, y)
    layers = [new.collapse(old, rate) for old, new in zip(start, steps, strict=True)]
    return fast.through(lambda k, x: layers[k](x), queries)


def plain(fast: FastMLP, rate: Tensor, x: Tensor, y: Tensor, queries: Tensor) -> Tensor:
    net = nn.Sequential(fast.linears[0], nn.ReLU(), fast.linears[1])
    weights = final_weights(net, rate, x, y, lambda output, y: (output - y).square().mean())
    return outputs(net, weights, queries)


def peak(side: Side) -> int:
    """Kilobytes that a step needs beyond what the process had before."""
    torch.set_num_threads(1)
    step(side, *drawn(2))
    given = drawn(EXAMPLES)
    before = memory("VmRSS")
    step(side, *given)
    return memory("VmHWM") - before


def memory(name: Literal["VmRSS", "VmHWM"]) -> int:
    """Kilobytes of this process, now or at most; unlike what getrusage says, the latter knows nothing of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
