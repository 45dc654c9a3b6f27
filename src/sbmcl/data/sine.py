"""The sine benchmark: a task is a sine function, an example two samplings of it. Endless and exact."""

import math

import torch

from sbmcl.data.episodes import EpisodeShape, Kind
from sbmcl.episode import Episode, episode_of_tasks


class SineSource:
    """Per task a frequency and two phases; per example an amplitude. x is noisy, y is clean and has the other phase:

        x = A sin(2 pi f g + p) + N(0, 0.1^2),   y = A sin(2 pi f g + p'),   g = 50 points in [0, 10]

    f, p and A can be read off x; what a learner has to remember of a task is p'.
    """

    points: int = 50
    x_shape: tuple[int, ...] = (50,)
    y_shape: tuple[int, ...] = (50,)
    kind: Kind = "vector"
    query_cap: int = 50

    def check(self, shape: EpisodeShape) -> None:
        """There are sine functions enough for any episode."""

    def draw(self, shape: EpisodeShape, batch: int, rng: torch.Generator) -> Episode:
        each, device = shape.shots + shape.queries, rng.device

        def uniform(*size: int) -> torch.Tensor:
            return torch.rand(size, generator=rng, device=device)

        frequency = 0.1 + uniform(batch, shape.tasks, 1, 1)
        x_phase, y_phase = (2 * math.pi * uniform(batch, shape.tasks, 1, 1) for _ in range(2))
        amplitude = 0.5 + uniform(batch, shape.tasks, each, 1)
        angle = 2 * math.pi * frequency * torch.linspace(0, 10, self.points, device=device)
        x = amplitude * (angle + x_phase).sin()
        x = x + 0.1 * torch.randn(x.shape, generator=rng, device=device)
        y = amplitude * (angle + y_phase).sin()
        return episode_of_tasks(x, y, shape.shots)
