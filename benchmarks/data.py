"""What drawing episodes costs beside a training step, from a store of the size of CASIA-HWDB and from endless glyphs.

    python benchmarks/data.py [FOLDER]

writes a store of 3.9 million pictures in 7,356 unequal classes to FOLDER (a temporary one, deleted again, unless named; it
takes 4 GB, and 8 while it is written) and prints how long it takes to open, what memory drawing adds, and the CPU time of
drawing 16 episodes of 10 tasks, 10 shots and 10 queries as a share of that of one training step of GeMCL on them, measured in
the same run on one thread.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from sbmcl.config import GeMCL
from sbmcl.data.episodes import EpisodeShape, EpisodeSource, rng_for
from sbmcl.data.glyphs import GlyphSource
from sbmcl.data.images import ImageEpisodes
from sbmcl.data.store import Store, StoreWriter
from sbmcl.data.tasks import Classification, Completion, Generation, Rotation, Task

CLASSES, PICTURES = 7_356, 3_900_000
EPISODES, SHAPE = 16, EpisodeShape()
TASKS: dict[str, Task] = {
    "classification": Classification(),
    "completion": Completion(),
    "rotation": Rotation(),
    "generation": Generation(),
}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    path = folder / "synthetic.safetensors"
    if not path.exists():
        took = clocked(lambda: write(path))
        print(
            f"written in {took:.0f} s: {PICTURES:,} pictures in {CLASSES:,} classes, {path.stat().st_size / 1e9:.1f} GB"
        )
    before, began = own_memory(), time.perf_counter()
    store = Store.load(path)
    sources = {name: ImageEpisodes(store, task=task) for name, task in TASKS.items()}
    print(f"opened in {time.perf_counter() - began:.3f} s, {(own_memory() - before) / 1e6:.0f} MB of memory")

    step = training_step(sources["classification"])
    before = own_memory()
    for name, source in {**sources, "glyphs, classification": GlyphSource()}.items():
        draw = min(
            cpu(lambda source=source, i=i: source.draw(SHAPE, EPISODES, rng_for(0, "draw", i))) for i in range(20)
        )
        print(f"  {name:24} {1e3 * draw:6.1f} ms, {draw / step:6.2%} of a training step")
    print(
        f"100 draws added {(own_memory() - before) / 1e6:.0f} MB of memory; what is read of the file is the system's to keep"
    )


def write(path: Path) -> None:
    """Classes of 300 to 1,000 pictures or so; every picture is noise of its own, in no order."""
    rng = np.random.default_rng(0)
    share = rng.uniform(0.3, 1.0, CLASSES)
    label = rng.choice(CLASSES, PICTURES, p=share / share.sum())
    with StoreWriter(path, "synthetic") as writer:
        for block in np.array_split(label, 400):
            pictures = rng.integers(0, 256, (len(block), 1, 32, 32), np.uint8)
            order = np.argsort(block, kind="stable")
            edges = np.flatnonzero(np.diff(block[order], prepend=-1, append=CLASSES))
            for start, stop in pairwise(edges):
                writer.add(f"{block[order[start]]:05}", pictures[order[start:stop]])


def training_step(source: EpisodeSource) -> float:
    """CPU seconds of one, without the drawing."""
    torch.manual_seed(0)
    method = GeMCL().build(source)
    optimizer = torch.optim.Adam(method.parameters(), 1e-4)
    episode = source.draw(SHAPE, EPISODES, rng_for(0, "train", 0))

    def step() -> None:
        optimizer.zero_grad()
        method.meta_loss(episode).total.backward()
        optimizer.step()

    seconds = min(cpu(step) for _ in range(3))
    print(f"a training step of GeMCL on {EPISODES} episodes: {seconds:.2f} s of one thread")
    return seconds


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def clocked(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def own_memory() -> int:
    """Bytes that are this process's own, not pages of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
