"""Any nn.Module that takes (x, z) becomes a continual learner. This one learns sine curves from points, seen once each."""

import torch
from torch import nn

from sbmcl.episode import Episode, Examples
from sbmcl.heads import VectorHead
from sbmcl.methods.latent import Latent
from sbmcl.nets.joined import Joined


class Curve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.modulate = nn.Linear(1, 64), nn.Linear(8, 128)
        self.rest = nn.Sequential(nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        scale, shift = self.modulate(z).chunk(2, -1)  # how z enters is up to you: here it scales and shifts a layer
        return self.rest((1 + scale) * self.first(x) + shift)


def episode(curves: int, seen: int) -> Episode:
    height, phase, x = 0.5 + torch.rand(curves, 1, 1), 3 * torch.rand(curves, 1, 1), 6 * torch.rand(curves, 30, 1)
    points = Examples(x, height * (x + phase).sin(), torch.zeros(curves, 30, dtype=torch.long))
    return Episode(points[:seen], points[seen:])


reader = Joined(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16)))
learner = Latent(reader, Curve(), VectorHead(), dim=8, kl_weight=0.02)  # as for noise of variance 0.01
optimizer = torch.optim.Adam(learner.parameters(), 3e-3)
for _ in range(500):
    optimizer.zero_grad()
    learner.meta_loss(episode(32, seen=10)).total.backward()
    optimizer.step()
new, state = episode(100, seen=20), learner.eval().init(100)
for t in range(20):  # one point at a time; nothing is kept but the belief about z
    state = learner.learn(state, new.stream[t : t + 1])
    print(f"{t + 1} points: squared error {learner.score(state, new.query)['mse'].mean().item():.3f}")
