"""What every data set of pictures is asked, by every method that the paper compares: a table, and the recipes made of it.

A recipe's name is its data set, benchmark and method, with `quick` or `small` at the end where it is cut down to minutes. To
add a benchmark or a method, write its settings into the table; whether a data set has it is said in that data set's file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sbmcl.config import (
    OML,
    OMLDDPM,
    OMLVAE,
    DataConfig,
    Diffusion,
    LatentCompletion,
    LatentDDPM,
    LatentRotation,
    LatentVAE,
    MethodConfig,
    Offline,
    OMLReptile,
    OMLReptileDDPM,
    OMLReptileVAE,
    Online,
    Training,
    Transformer,
)
from sbmcl.data.episodes import TaskName
from sbmcl.experiment import Experiment

Made = Callable[[], Experiment[Any, Any]]
Settings = tuple[MethodConfig, Training]

SCRATCH = Training(steps=0)
SLOW, FAST = Training(), Training(lr=1e-3)
QUICK = Training(steps=1_500, episodes=4, lr=1e-3, schedule="cosine", warmup=100, clip=1.0)
"""Minutes on a small machine."""

SMALLER: dict[str, Any] = {"steps": 200, "base": 32, "levels": 3, "groups": 16}
SMALL = Diffusion(**SMALLER)
"""Of a diffusion model of 16 x 16 pictures."""

METHODS = {  # in the order of the paper's tables
    "offline": "by learning from scratch with all examples at hand",
    "online": "by learning from scratch in one pass over the stream",
    "oml": "with OML",
    "oml-reptile": "with OML-Reptile",
    "tf": "with a transformer",
    "linear-tf": "with a linear transformer",
    "sbmcl": "with the generic SB-MCL",
}
REMARKS = {
    "offline": " (the best of 100 scores during training, on 4 queries)",
    "online": " (a pass in random order, the score of 4 queries)",
}

TRANSFORMERS: dict[str, Settings] = {
    "tf": (Transformer(), SLOW),
    "linear-tf": (Transformer("linear", head_width=512), SLOW),
}
TRANSFORMERS_QUICK: dict[str, Settings] = {
    "tf": (Transformer(norm=True, guided=500), replace(QUICK, steps=2_500, episodes=8, lr=5e-4)),
    "linear-tf": (
        Transformer("linear", head_width=512, norm=True, guided=200),
        replace(QUICK, steps=1_000, lr=5e-4),
    ),
}
FROM_SCRATCH: dict[str, Settings] = {"offline": (Offline(), SCRATCH), "online": (Online(), SCRATCH)}
OMLS: dict[str, Settings] = {"oml": (OML(), SLOW), "oml-reptile": (OMLReptile(), FAST)}
OMLS_QUICK: dict[str, Settings] = {"oml": (OML(), QUICK), "oml-reptile": (OMLReptile(), replace(QUICK, steps=2_500))}


@dataclass(frozen=True)
class Benchmark:
    task: TaskName
    what: str
    published: dict[str, Settings]
    """Models and training as published, by method."""
    cut: dict[str, Settings]
    """Trained for minutes."""
    cut_task: TaskName | None = None
    """Where what is cut is the pictures too."""

    @property
    def suffix(self) -> str:
        return "quick" if self.cut_task is None else "small"


BENCHMARKS = {
    "classification": Benchmark("classification", "Classes of pictures", FROM_SCRATCH | OMLS | TRANSFORMERS, {}),
    "completion": Benchmark(
        "completion",
        "Lower halves of pictures from upper ones",
        FROM_SCRATCH | OMLS | TRANSFORMERS | {"sbmcl": (LatentCompletion(), Training(lr=3e-3))},
        OMLS_QUICK | TRANSFORMERS_QUICK | {"sbmcl": (LatentCompletion(), QUICK)},
    ),
    "rotation": Benchmark(
        "rotation",
        "Angles of turned pictures",
        FROM_SCRATCH
        | {"oml": (OML(rate=1e-4), SLOW), "oml-reptile": (OMLReptile(rate=1e-4), FAST)}
        | TRANSFORMERS
        | {"sbmcl": (LatentRotation(), SLOW)},
        OMLS_QUICK | TRANSFORMERS_QUICK | {"sbmcl": (LatentRotation(), QUICK)},
    ),
    "rotation-offset": Benchmark(
        "rotation-offset",
        "Angles of turned pictures, offset by one that only the stream can tell,",
        FROM_SCRATCH | OMLS | TRANSFORMERS | {"sbmcl": (LatentRotation(), SLOW)},
        OMLS_QUICK | TRANSFORMERS_QUICK | {"sbmcl": (LatentRotation(), QUICK)},
    ),
    "vae": Benchmark(
        "binarised",
        "A variational auto-encoder",
        FROM_SCRATCH
        | {
            "oml": (OMLVAE(), Training(lr=3e-4)),
            "oml-reptile": (OMLReptileVAE(), FAST),
            "sbmcl": (LatentVAE(), FAST),
        },
        {
            "oml": (OMLVAE(warmup=100), QUICK),
            "oml-reptile": (OMLReptileVAE(warmup=300), replace(QUICK, steps=2_500)),
            "sbmcl": (LatentVAE(warmup=300), QUICK),
        },
    ),
    "ddpm": Benchmark(
        "generation",
        "A diffusion model",
        FROM_SCRATCH
        | {
            "oml": (OMLDDPM(), Training(lr=1e-3, episodes=8)),
            "oml-reptile": (OMLReptileDDPM(), Training(lr=1e-3, episodes=8)),
            "sbmcl": (LatentDDPM(), Training(lr=1e-3, episodes=8)),
        },
        {
            "offline": (Offline(diffusion=SMALL), SCRATCH),
            "online": (Online(diffusion=SMALL), SCRATCH),
            "oml": (OMLDDPM(**SMALLER), QUICK),
            "oml-reptile": (OMLReptileDDPM(**SMALLER), QUICK),
            "sbmcl": (LatentDDPM(**SMALLER), QUICK),
        },
        "generation-16",
    ),
}


def of(
    data: type[DataConfig], benchmark: str, methods: Iterable[str] = METHODS, *, paper: dict[str, str] | None = None
) -> list[Made]:
    """The published recipes of a benchmark for a data set; `paper` has the paper's scores by method."""
    table, scores = BENCHMARKS[benchmark], paper or {}
    return [
        recipe(data, benchmark, table.task, method, table.published[method], paper=scores.get(method, ""))
        for method in methods
        if method in table.published
    ]


def quick(data: type[DataConfig], benchmark: str, methods: Iterable[str] = METHODS) -> list[Made]:
    """The same, trained for minutes; who learns from scratch has nothing to cut but the pictures."""
    table = BENCHMARKS[benchmark]
    return [
        recipe(data, benchmark, table.cut_task or table.task, method, table.cut[method], suffix=table.suffix)
        for method in methods
        if method in table.cut
    ]


def recipe(
    data: type[DataConfig],
    benchmark: str,
    task: TaskName,
    method: str,
    settings: Settings,
    *,
    suffix: str = "",
    paper: str = "",
) -> Made:
    """A recipe like one that is written out: a function with a name and a page."""
    name = "-".join(filter(None, (data.name, benchmark.removeprefix("classification"), method, suffix)))
    config, training = settings
    whole = {"validation": 0.0} if config.meta_trained and not suffix else {}

    def made() -> Experiment[Any, Any]:
        source = data(task=task, **whole)  # pyright: ignore[reportCallIssue]
        return Experiment(name, f"{data.name}/{benchmark}", method, source, config, training)

    size = {"": "published models and training", "quick": "trained for minutes", "small": "small, trained for minutes"}[
        suffix
    ]
    made.__name__ = made.__qualname__ = name.replace("-", "_")
    made.__doc__ = f"{BENCHMARKS[benchmark].what} {METHODS[method]}, {size}."
    if paper:
        made.__doc__ += f"\n\nPaper: {paper}{REMARKS.get(method, '')}"
    return made
