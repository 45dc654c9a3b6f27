"""How things are called and written in the report: methods, benchmarks, metrics, the paper's tables, numbers.

It may know the keys of rows and of the paper's cells, and nothing else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbmcl.report.cells import Question

METHODS = {
    "offline": "Offline",
    "online": "Online",
    "oml": "OML",
    "oml-reptile": "OML-Rep",
    "tf": "TF",
    "linear-tf": "Linear TF",
    "pn": "PN",
    "pn-map": "PN (MAP)",
    "sbmcl": "SB-MCL",
    "sbmcl-map": "SB-MCL (MAP)",
}
DATA = {"sine": "Sine", "omniglot": "Omniglot", "casia": "CASIA", "celeb": "Celeb", "glyphs": "Glyphs"}
TASKS = {
    "classification": "classification",
    "regression": "regression",
    "completion": "completion",
    "rotation": "rotation",
    "rotation-offset": "rotation with class offsets",
    "vae": "VAE",
    "ddpm": "DDPM",
}
METRICS = {
    "error": "error rate",
    "mse": "mean squared error",
    "angle": "1 − cos of the angle error",
    "bpd": "bits per dimension",
    "noise_mse": "mean squared error of the noise",
    "nll": "negative log-likelihood (nats)",
    "ece": "expected calibration error",
    "novelty_auroc": "AUROC of novelty",
    "forgetting": "forgetting",
    "forgetting_same_answers": "forgetting, same answers",
    "backward_transfer": "backward transfer",
    "likeness": "likeness of samples (chance 0.5, higher is better)",
    "likeness_prior": "likeness before the stream",
    "likeness_drawings": "likeness of real drawings",
}
PAPER_TABLES = {
    "tab:clf": ("Classification", "Error rate at 10 tasks, 10 shots."),
    "tab:reg": ("Regression", "Loss at 10 tasks, 10 shots: squared error; of rotation, 1 − cos of the angle error."),
    "tab:gen": (
        "Deep generative models",
        "Loss at 10 tasks, 10 shots: bits per dimension of the VAE, noise error of the DDPM.",
    ),
    "tab:ood": (
        "Generalization to another data set",
        "Meta-trained on CASIA, meta-tested on Omniglot; 10 tasks, 10 shots.",
    ),
    "tab:time": ("Meta-training time", "Hours for 50,000 steps; the paper's on one A40."),
    "app:casia_clf_tasks": ("CASIA classification with more tasks", "Error rate; 10 shots."),
    "app:casia_clf_shots": ("CASIA classification with more shots", "Error rate; 10 tasks."),
    "app:sine_tasks": ("Sine regression with more tasks", "Mean squared error; 10 shots."),
    "app:sine_shots": ("Sine regression with more shots", "Mean squared error; 10 tasks."),
    "app:casia_compl_tasks": ("CASIA completion with more tasks", "Mean squared error; 10 shots."),
    "app:casia_compl_shots": ("CASIA completion with more shots", "Mean squared error; 10 tasks."),
    "app:casia_rot_tasks": ("CASIA rotation with more tasks", "1 − cos of the angle error; 10 shots."),
    "app:casia_rot_shots": ("CASIA rotation with more shots", "1 − cos of the angle error; 10 tasks."),
    "app:casia_vae_tasks": ("CASIA VAE with more tasks", "Bits per dimension; 10 shots."),
    "app:casia_vae_shots": ("CASIA VAE with more shots", "Bits per dimension; 10 tasks."),
    "app:casia_ddpm_tasks": ("CASIA DDPM with more tasks", "Mean squared error of the noise; 10 shots."),
    "app:casia_ddpm_shots": ("CASIA DDPM with more shots", "Mean squared error of the noise; 10 tasks."),
}


def anchor(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")


def method(key: str) -> str:
    return METHODS.get(key, key)


def benchmark(key: str) -> str:
    data, _, task = key.partition("/")
    return f"{DATA.get(data, data)} {TASKS.get(task, task)}"


def metric(key: str) -> str:
    return METRICS.get(key, key)


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def column_namer(table: str) -> Callable[["Question"], str]:
    """What tells the columns of a paper's table apart."""
    if table.endswith("_tasks"):
        return lambda question: plural(question.tasks, "task")
    if table.endswith("_shots"):
        return lambda question: plural(question.shots, "shot")
    return lambda question: benchmark(question.benchmark)


def number(value: float, decimals: int = 3) -> str:
    """At least so many decimals, and at least two digits that are not zero."""
    while decimals < 8 and value and abs(value) < 10 ** (1 - decimals):
        decimals += 1
    return f"{value:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def duration(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.3g} h"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def sentence(items: list[str]) -> str:
    """One, two and three."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"
