"""One step of an experiment on stand-in data: whether it can be built, trained and asked at all, in about a second.

What stands in has the kind and the shapes of the real data, which need not lie on this machine: drawn glyphs for pictures
of any source, random numbers for vectors.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.config import Celeb, DataConfig, Embeddings, Sine
from sbmcl.config.data import PictureData
from sbmcl.data.episodes import EpisodeShape, EpisodeSource, rng_for
from sbmcl.data.glyphs import SIZE, GlyphSource
from sbmcl.data.store import Store
from sbmcl.data.tasks import Classification, task_named
from sbmcl.data.vectors import Regression, VectorEpisodes
from sbmcl.experiment import Experiment
from sbmcl.train import new_learner, new_method, one_step

SHAPE = EpisodeShape(tasks=2, shots=2, queries=2)
EPISODES = 2
VECTOR = 32
CPU = torch.device("cpu")


def check(experiment: Experiment[Any, Any]) -> None:
    """Build it, take one step of the outer loop where there is one, learn a stream and be asked; a failure is an exception."""
    training = replace(experiment.training, episodes=EPISODES, shape=SHAPE, compile=False)
    small = replace(experiment, method=hurried(experiment.method), training=training)
    source = stand_in(experiment.data)
    if experiment.method.meta_trained:
        learner = new_learner(small, source, CPU)
        losses = one_step(learner, small, source, CPU)
        if not losses["loss"].isfinite():
            raise ValueError(f"{experiment.recipe} has a loss of {losses['loss'].item()} in its first step")
        method = learner.method.eval()
    else:
        method = new_method(small, source, CPU).eval()
    episode, rng = source.draw(SHAPE, 1, rng_for(0, "check", 0)), rng_for(0, "check method", 0)
    with torch.no_grad():
        scores = method.score(method.learn(method.init(1, rng=rng), episode.stream), episode.query, rng=rng)
    if not scores[method.head.metric].isfinite().all():
        raise ValueError(f"{experiment.recipe} scores its queries as {scores[method.head.metric].tolist()}")


def hurried(method: Any) -> Any:
    """The same with one step, where every stream is learned from scratch in many."""
    return replace(method, steps=1) if not method.meta_trained and hasattr(method, "steps") else method


def stand_in(data: DataConfig) -> EpisodeSource:
    if isinstance(data, Sine):
        return data.source("train")
    if isinstance(data, Embeddings):
        return VectorEpisodes(vectors(), task=Regression(data.targets) if data.targets else Classification())
    assert isinstance(data, PictureData)
    return (Coloured if isinstance(data, Celeb) else GlyphSource)(task=task_named(data.task))


class Coloured(GlyphSource):
    """Glyphs in three channels."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.x_shape, self.y_shape = self.task.shapes((3, SIZE, SIZE))

    def pictures(self, number: Int[Tensor, "*b"], each: int, rng: torch.Generator) -> Float[Tensor, "*b n 3 h w"]:
        return super().pictures(number, each, rng).repeat_interleave(3, dim=-3)


def vectors(classes: int = 8, each: int = 10) -> Store:
    random = np.random.default_rng(0)
    return Store.of("vectors", [(f"class {c}", random.normal(size=(each, VECTOR)).astype("f")) for c in range(classes)])
