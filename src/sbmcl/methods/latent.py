"""The generic SB-MCL: a Gaussian belief about a latent z, and any model that takes (x, z).

To make a continual learner of your own model, bring three things: a model that takes inputs and z, a learner that reads an
example and returns a mean and a log-precision for every dimension of z, and a head. How z enters the model is the model's
business.
"""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from sbmcl.beliefs import DiagonalGaussian
from sbmcl.beliefs.base import standard_normal
from sbmcl.episode import Episode, Examples
from sbmcl.heads import DiffusionHead, Head, VAEHead
from sbmcl.methods.base import Losses, Method
from sbmcl.nets.vae import VAE


class Latent(Method[DiagonalGaussian]):
    """One z a stream; each example adds a Gaussian factor to the belief q(z | stream) (Lee et al. 2024; SPEC 1, 2.1).

    `learner(x, y)`, or `learner(x)` where there is no y, returns a pseudo-observation and a log-precision, `dim` numbers
    each; `model(x, z)` returns a prediction, which `head` judges. The outer loop minimises, for T examples in the stream, N
    queries and a per-example loss l worth d nats,

        1/(T + N) sum l(model(x, z), y)  +  kl_weight/((T + N) d) KL(q(z | stream) || N(0, I)),    z ~ q(z | stream)

    with the sum over stream and queries and a z of its own for every example. With l the exact negative log-likelihood and
    `kl_weight` 1 this is the negative evidence lower bound of stream and queries together. The belief starts from a learned
    prior, while the KL is taken to the fixed N(0, I).

    An `encoder` is the part of the model that z does not touch: it reads x once, however many z follow, and the model reads
    its output in place of x. If `shared`, the learner does too. `published_kl` puts the reference's penalty in place of the
    KL, for comparison only: it takes precisions for variances (SPEC D1).
    """

    def __init__(
        self,
        learner: nn.Module,
        model: nn.Module,
        head: Head,
        dim: int,
        *,
        encoder: nn.Module | None = None,
        shared: bool = False,
        kl_weight: float = 1.0,
        published_kl: bool = False,
        samples: int = 5,
    ):
        super().__init__()
        self.encoder = encoder
        self.learner = learner
        self.model = model
        self.head = head
        self.shared = shared
        self.kl_weight = kl_weight
        self.published_kl = published_kl
        self.samples = samples  # draws of z for every answer
        self.prior_mean = nn.Parameter(torch.zeros(dim))
        self.prior_log_precision = nn.Parameter(torch.zeros(dim))

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> DiagonalGaussian:
        prior = DiagonalGaussian.of(self.prior_mean, self.prior_log_precision)
        return DiagonalGaussian(prior.precision.expand(batch, -1), prior.shift.expand(batch, -1))

    def learn(self, state: DiagonalGaussian, examples: Examples) -> DiagonalGaussian:
        x = self._encode(examples.x) if self.shared else examples.x
        return self._observe(state, x, examples.y)

    def predict(
        self,
        state: DiagonalGaussian,
        x: Float[Tensor, "b n *x"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> Shaped[Tensor, "b n *y"]:
        """The mean of the model's answers over draws of z."""
        code = self._encode(x)
        answers = [self.run(self.model, code, z) for z in self._draws(state, x.shape[1], rng, at_mode)]
        return torch.stack(answers).mean(0)

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        seen, asked = episode.stream, episode.query
        x, y = torch.cat([seen.x, asked.x], dim=1), torch.cat([_answers(seen), _answers(asked)], dim=1)
        code = self._encode(x)
        belief = self._observe(self.init(episode.size), (code if self.shared else x)[:, : len(seen)], seen.y)
        z = self._draw(belief, x.shape[1], rng)
        inputs, target = self.head.ask(code, y, rng)
        prediction = self.run(self.model, *inputs, z)
        kl = self._penalty(belief).mean()
        head, nats = self.head.at(self.meta_step), x.shape[1] * self.head.nats(y)
        total = head.loss(prediction, target) + self.kl_weight / nats * kl
        with torch.no_grad():
            score = self.head.scores(prediction, target)[self.head.metric][:, len(seen) :].mean()
        return Losses(total, {self.head.metric: score, "kl": kl.detach()})

    def _encode(self, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n *c"]:
        return x if self.encoder is None else self.run(self.encoder, x)

    def _observe(self, belief: DiagonalGaussian, x: Tensor, y: Tensor | None) -> DiagonalGaussian:
        mean, log_precision = self.run(self.learner, x, *([] if y is None else [y])).chunk(2, -1)
        return belief.observe(belief.evidence(mean, log_precision))

    def _draw(
        self, belief: DiagonalGaussian, n: int, rng: torch.Generator | None, *, at_mode: bool = False
    ) -> Float[Tensor, "b n d"]:
        """A z for each of n examples, drawn for it alone, or the mode."""
        if at_mode:
            return belief.mode().unsqueeze(1).expand(-1, n, -1)
        return belief.sample(n, rng=rng).movedim(0, 1)

    def _draws(
        self, belief: DiagonalGaussian, n: int, rng: torch.Generator | None, at_mode: bool
    ) -> list[Float[Tensor, "b n d"]]:
        """All the z that n queries are answered with."""
        return [self._draw(belief, n, rng, at_mode=at_mode) for _ in range(1 if at_mode else self.samples)]

    def _penalty(self, belief: DiagonalGaussian) -> Float[Tensor, "b"]:
        if self.published_kl:
            return 0.5 * (belief.mean.square() + belief.precision - belief.precision.log() - 1).sum(-1)
        one = torch.ones_like(belief.precision)
        return belief.kl(DiagonalGaussian(one, 0 * one))


class GenerativeLatent(Latent):
    """There is no y: a picture is its own answer, and how well the model accounts for it is the score."""

    def score(
        self,
        state: DiagonalGaussian,
        queries: Examples,
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> dict[str, Float[Tensor, "b n"]]:
        """The mean of the scores over draws of z and over random questions; every draw is asked the same ones."""
        code, draws = self._encode(queries.x), self._draws(state, len(queries), rng, at_mode)
        found: dict[str, Tensor] = {}
        for _ in range(self.head.questions):
            inputs, target = self.head.ask(code, queries.x, rng)
            for z in draws:
                for name, score in self.head.scores(self.run(self.model, *inputs, z), target).items():
                    found[name] = found[name] + score if name in found else score
        return {name: total / (self.head.questions * len(draws)) for name, total in found.items()}

    @abstractmethod
    def sample(
        self, state: DiagonalGaussian, n: int, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n c h w"]:
        """New pictures in [-1, 1], as of those learned; each has a z of its own."""


class LatentVAE(GenerativeLatent):
    """A variational auto-encoder whose two halves both read z (SPEC 3.2)."""

    head: VAEHead
    model: VAE

    def predict(
        self,
        state: DiagonalGaussian,
        x: Float[Tensor, "b n c h w"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> Float[Tensor, "b n c h w"]:
        """Reconstructions: each picture from the mean of its u, averaged over draws of z."""
        code, draws = self._encode(x), self._draws(state, x.shape[1], rng, at_mode)
        silence = torch.zeros(*x.shape[:2], self.head.latent, dtype=x.dtype, device=x.device)
        made = [self.head.pictures(self.run(self.model, code, silence, z).logits) for z in draws]
        return torch.stack(made).mean(0)

    @torch.no_grad()
    def sample(
        self, state: DiagonalGaussian, n: int, *, rng: torch.Generator | None = None, at_mode: bool = False
    ) -> Float[Tensor, "b n c h w"]:
        z = self._draw(state, n, rng, at_mode=at_mode)
        u = standard_normal((*z.shape[:2], self.head.latent), z, rng)
        return self.head.pictures(self.run(self.model.decode, u, z))


class LatentDDPM(GenerativeLatent):
    """A denoising diffusion model whose noise predictor reads z (SPEC 3.3); its pictures have `shape`."""

    head: DiffusionHead

    def __init__(
        self,
        learner: nn.Module,
        model: nn.Module,
        head: DiffusionHead,
        dim: int,
        shape: tuple[int, ...],
        **options: Any,
    ):
        super().__init__(learner, model, head, dim, **options)
        self.shape = shape

    def predict(
        self,
        state: DiagonalGaussian,
        x: Float[Tensor, "b n c h w"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> Float[Tensor, "b n c h w"]:
        """Reconstructions: each picture as it is guessed in one step from the middle of its diffusion, averaged over z."""
        t = torch.full(x.shape[:2], self.head.steps // 2, device=x.device)
        x_t = self.head.noised(x, t, standard_normal(x.shape, x, rng))
        draws = self._draws(state, x.shape[1], rng, at_mode)
        noise = torch.stack([self.run(self.model, x_t, t, z) for z in draws]).mean(0)
        return self.head.cleaned(x_t, t, noise).clamp(-1, 1)

    @torch.no_grad()
    def sample(
        self,
        state: DiagonalGaussian,
        n: int,
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
        steps: int | None = None,
    ) -> Float[Tensor, "b n c h w"]:
        """By the ancestral sampler, or by DDIM in so many `steps`."""
        z = self._draw(state, n, rng, at_mode=at_mode)
        start = standard_normal((*z.shape[:2], *self.shape), z, rng)

        def noise_in(x_t: Tensor, t: Tensor) -> Tensor:
            return self.run(self.model, x_t, t, z)

        if steps is None:
            return self.head.ancestral(noise_in, start, rng)
        return self.head.ddim(noise_in, start, steps)


def _answers(examples: Examples) -> Tensor:
    """What the model's predictions are judged by: y, or x itself where there is none."""
    return examples.x if examples.y is None else examples.y
