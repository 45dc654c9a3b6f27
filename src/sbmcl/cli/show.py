"""`sbmcl show`: run folders in, pictures of what they do out."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from sbmcl.cli.common import Exit, Failure, aside, device_named, shown, use_threads


def show(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")],
    /,
    tasks: int = 5,
    shots: int = 10,
    number: int = 0,
    map: bool = False,
    steps: int = 50,
    ancestral: bool = False,
    out: Path = Path("pictures"),
    which: Literal["best", "last"] | None = None,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Draw what trained runs do after one stream of new tasks.

    The stream itself, then what there is to see of it: completions beside the truth, pictures turned back, reconstructions,
    samples, classes found, functions. Several runs of one benchmark stand side by side.

    Args:
        runs: Run folders, as 'sbmcl train' makes them.
        tasks: Tasks in the stream.
        shots: Shots of each task.
        number: Which stream; the same number is the same stream for every run of a benchmark.
        map: Put the mode of the belief in place of the belief.
        steps: Samples of diffusion models by DDIM, in so many steps.
        ancestral: Samples of diffusion models by the ancestral sampler instead, through every step.
        out: The folder for the pictures; in results they become the gallery of the report.
        which: The best weights on validation or the last; without it the best, where there are any.
        device: auto, cpu, cuda, cuda:1, ...
        threads: Cores to use; all unless limited.
    """
    from sbmcl.evaluate import load
    from sbmcl.gallery import gallery

    if not runs:
        raise Failure("which run? sbmcl show RUN_FOLDER; 'sbmcl train RECIPE' makes one", Exit.USAGE)
    if number < 0:
        raise Failure(f"streams are counted from 0, but --number is {number}", Exit.USAGE)
    target = device_named(device)
    use_threads(threads)
    learners = [load(run, target, which) for run in runs]
    pictures = gallery(learners, (tasks, shots), number=number, at_mode=map, steps=None if ancestral else steps)
    with aside.status("learning, drawing"):
        for picture in pictures:
            aside.print(f"wrote [cyan]{shown(picture.write(out))}[/]", soft_wrap=True)
