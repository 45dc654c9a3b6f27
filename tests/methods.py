"""Every method of the library, tiny, beside a source that it learns from in milliseconds.

To put a method under `test_every_method.py`, add one entry to `METHODS`; nothing else is needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from sbmcl import config
from sbmcl.config import LatentCompletion, LatentDDPM, LatentRotation, LatentVAE, Transformer
from sbmcl.config.sgd import head as head_for
from sbmcl.data.episodes import EpisodeShape, EpisodeSource
from sbmcl.data.images import ImageEpisodes
from sbmcl.data.sine import SineSource
from sbmcl.data.store import Store
from sbmcl.data.tasks import TaskName, task_named
from sbmcl.heads import VectorHead
from sbmcl.methods.base import Method
from sbmcl.methods.conjugate import PN, ALPaCA, GeMCL
from sbmcl.methods.latent import Latent
from sbmcl.methods.oml import OML, OMLReptile
from sbmcl.methods.sgd import FromScratch, Offline, Online
from sbmcl.nets.fast import FastMLP
from sbmcl.nets.joined import Joined
from sbmcl.nets.mlp import MLP


@dataclass(frozen=True)
class Case:
    build: Callable[[EpisodeSource], Method[Any]]
    """A freshly initialised method for what the source draws; torch's global seed decides the weights."""
    source: Callable[[], EpisodeSource]
    shape: EpisodeShape = EpisodeShape(tasks=3, shots=4, queries=2)  # noqa: RUF009 (frozen)
    noisy: bool = False
    """Scores depend on noise even at the mode of the belief (a VAE's code, a diffusion's noise), so that only the states
    of two runs can be compared, not their scores."""
    fixed: tuple[str, ...] = ()
    """Parameters that the outer loop leaves alone on purpose, by name."""
    meta_trained: bool = True
    """Whether there is an outer loop at all."""
    tolerance: float = 1e-8
    """Relative, of two routes to one state in float64."""
    single: float = 1e-3
    """Relative, of float32 against float64."""


def pictures(task: TaskName = "classification", *, channels: int = 1, size: int = 16) -> EpisodeSource:
    """Six classes of eight random pictures around a picture of the class."""
    rng = torch.Generator().manual_seed(0)
    centre = torch.rand(6, 1, channels, size, size, generator=rng)
    images = (0.7 * centre + 0.3 * torch.rand(6, 8, channels, size, size, generator=rng)).flatten(0, 1)
    store = Store("tiny", (255 * images).byte(), torch.arange(7) * 8, tuple("abcdef"))
    return ImageEpisodes(store, task=task_named(task))


def flat_encoder(source: EpisodeSource, out: int) -> nn.Module:
    """The cheapest encoder of pictures or vectors that still has a batch-norm."""
    inputs = torch.Size(source.x_shape).numel()
    return nn.Sequential(nn.Flatten(), MLP(inputs, out, hidden=16))


def gemcl(source: EpisodeSource, **options: Any) -> GeMCL:
    return GeMCL(flat_encoder(source, 8), 8, shape=5.0, rate=3.0, **options)


def pn(source: EpisodeSource, **options: Any) -> PN:
    return PN(flat_encoder(source, 8), 8, **options)


def alpaca(source: EpisodeSource, **options: Any) -> ALPaCA:
    (inputs,), (out,) = source.x_shape, source.y_shape
    return ALPaCA(MLP(inputs, 8, hidden=16, final="relu"), 8, out, **options)


def from_scratch(method: type[FromScratch[Any]], source: EpisodeSource, **options: Any) -> FromScratch[Any]:
    head, inputs = head_for(source), torch.Size(source.x_shape).numel()
    classes = 7 if source.kind == "classes" else 0

    def build() -> nn.Module:
        answer = nn.Unflatten(-1, source.y_shape) if source.y_shape else nn.Identity()
        out = classes or torch.Size(source.y_shape).numel()
        return nn.Sequential(nn.Flatten(), MLP(inputs, 16, hidden=16, final="relu"), MLP(16, out, hidden=16), answer)

    shapes = source.x_shape, source.y_shape
    return method(build, head, *shapes, lr=1e-4, halve_every=2, classes=classes, **options)


def latent(source: EpisodeSource, **options: Any) -> Latent:
    (inputs,), (out,) = source.x_shape, source.y_shape
    learner, model = Joined(MLP(inputs + out, 8, hidden=16)), Joined(MLP(inputs + 4, out, hidden=16))
    return Latent(learner, model, VectorHead(), 4, samples=2, **options)


def oml(kind: type[OML], source: EpisodeSource, **options: Any) -> OML:
    classes = 7 if source.kind == "classes" else 0
    fast = FastMLP(8, classes or source.y_shape[0], hidden=10)
    return kind(flat_encoder(source, 8), fast, head_for(source), rate=0.3, classes=classes, **options)


def transformer(source: EpisodeSource, **options: Any) -> Method[Any]:
    tiny = Transformer(width=16, layers=2, heads=2, head_width=8, hidden=16, vocabulary=7, **options)
    return tiny.build(source)


TINY = config.Diffusion(base=8, levels=2, groups=4, steps=50)

METHODS: dict[str, Case] = {
    "gemcl": Case(gemcl, pictures),
    "gemcl-informative-tempered": Case(partial(gemcl, count=0.5, tempered=True), pictures),
    "pn": Case(pn, pictures),
    "pn-informative-tempered": Case(partial(pn, precision=0.5, tempered=True), pictures),
    "alpaca-mse": Case(alpaca, SineSource),
    "alpaca-nll": Case(partial(alpaca, loss="nll"), SineSource),
    "online-classes": Case(partial(from_scratch, Online, batch=2), pictures, meta_trained=False),
    "online-vector": Case(partial(from_scratch, Online, batch=5), SineSource, meta_trained=False),
    "online-angle": Case(  # Adam makes whole steps of gradients that are nothing but rounding
        partial(from_scratch, Online, batch=5), partial(pictures, "rotation"), meta_trained=False, single=1e-2
    ),
    "online-image": Case(partial(from_scratch, Online, batch=5), partial(pictures, "completion"), meta_trained=False),
    "offline-classes": Case(partial(from_scratch, Offline, batch=4, steps=5), pictures, noisy=True, meta_trained=False),
    "offline-vector": Case(
        partial(from_scratch, Offline, batch=4, steps=5), SineSource, noisy=True, meta_trained=False
    ),
    "online-vae": Case(
        config.Online(width=8, batch=5).build, partial(pictures, "binarised"), noisy=True, meta_trained=False
    ),
    "offline-vae": Case(
        config.Offline(width=8, batch=4, steps=3).build, partial(pictures, "binarised"), noisy=True, meta_trained=False
    ),
    "online-ddpm": Case(
        config.Online(diffusion=TINY, batch=5).build,
        partial(pictures, "generation"),
        noisy=True,
        meta_trained=False,
        single=1e-2,  # as online-angle
    ),
    "offline-ddpm": Case(
        config.Offline(diffusion=TINY, batch=4, steps=3).build,
        partial(pictures, "generation"),
        noisy=True,
        meta_trained=False,
    ),
    "latent-vector": Case(latent, SineSource),
    "latent-vector-published-kl": Case(partial(latent, published_kl=True), SineSource),
    "latent-completion": Case(LatentCompletion(width=8).build, partial(pictures, "completion", size=32)),
    "latent-rotation": Case(LatentRotation(width=8).build, partial(pictures, "rotation")),
    "latent-vae": Case(LatentVAE(width=8, draws=2).build, partial(pictures, "binarised"), noisy=True),
    "latent-ddpm": Case(
        LatentDDPM(base=8, levels=2, groups=4, steps=50).build, partial(pictures, "generation"), noisy=True
    ),
    "oml-classes": Case(partial(oml, OML), pictures),
    "oml-classes-redrawn": Case(
        partial(oml, OML, redraw=True), pictures, fixed=("fast.layers.1.weight", "fast.layers.1.bias")
    ),
    "oml-vector": Case(partial(oml, OML), SineSource),
    "oml-angle": Case(partial(oml, OML), partial(pictures, "rotation")),
    "oml-completion": Case(config.OML(width=8, hidden=10).build, partial(pictures, "completion", size=32)),
    "oml-vae": Case(
        config.OMLVAE(width=8, hidden=10, draws=2).build, partial(pictures, "binarised", size=16), noisy=True
    ),
    "oml-ddpm": Case(
        config.OMLDDPM(base=8, levels=2, groups=4, steps=50).build,
        partial(pictures, "generation"),
        noisy=True,
        single=2e-2,  # of biases whose change a group-norm takes back, but for rounding
    ),
    "oml-reptile-classes": Case(partial(oml, OMLReptile), pictures),
    "oml-reptile-vector": Case(partial(oml, OMLReptile), SineSource),
    "oml-reptile-completion": Case(
        config.OMLReptile(width=8, hidden=10).build, partial(pictures, "completion", size=32)
    ),
    "oml-reptile-vae": Case(
        config.OMLReptileVAE(width=8, hidden=10, draws=2).build, partial(pictures, "binarised", size=16), noisy=True
    ),
    "oml-reptile-ddpm": Case(
        config.OMLReptileDDPM(base=8, levels=2, groups=4, steps=50).build,
        partial(pictures, "generation"),
        noisy=True,
        single=2e-2,  # of biases whose change a group-norm takes back, but for rounding
    ),
    "tf-classes": Case(transformer, pictures),
    "tf-vector": Case(partial(transformer, norm=True), SineSource),
    "tf-angle": Case(transformer, partial(pictures, "rotation")),
    "tf-image": Case(transformer, partial(pictures, "completion")),
    "linear-tf-classes": Case(partial(transformer, attention="linear"), pictures),
    "linear-tf-vector": Case(partial(transformer, attention="linear", norm=True), SineSource),
    "linear-tf-angle": Case(partial(transformer, attention="linear"), partial(pictures, "rotation")),
    "linear-tf-image": Case(partial(transformer, attention="linear"), partial(pictures, "completion")),
}
