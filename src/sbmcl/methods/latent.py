"""The generic SB-MCL: a Gaussian belief about a latent z, and any model that takes (x, z).

To make a continual learner of your own model, bring three things: a model that takes inputs and z, a learner that reads an
example and returns a mean and a log-precision for every dimension of z, and a head. How z enters the model is the model's
business.
"""

from typing import Any, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from sbmcl.beliefs import DiagonalGaussian
from sbmcl.episode import Episode, Examples
from sbmcl.heads import DiffusionHead, Head
from sbmcl.methods.base import Losses, Method, answers
from sbmcl.methods.generative import Generative, Model, OfDDPM, OfVAE
from sbmcl.nets.vae import VAE


class Latent(Method[DiagonalGaussian]):
    """One z a stream; each example adds a Gaussian factor to the belief q(z | stream) (Lee et al. 2024).

    `learner(x, y)`, or `learner(x)` where there is no y, returns a pseudo-observation and a log-precision, `dim` numbers
    each; `model(x, z)` returns a prediction, which `head` judges. The outer loop minimises, for T examples in the stream, N
    queries and a per-example loss l worth d nats,

        1/(T + N) sum l(model(x, z), y)  +  kl_weight/((T + N) d) KL(q(z | stream) || N(0, I)),    z ~ q(z | stream)

    with the sum over stream and queries and a z of its own for every example. With l the exact negative log-likelihood and
    `kl_weight` 1 this is the negative evidence lower bound of stream and queries together. The belief starts from a learned
    prior, while the KL is taken to the fixed N(0, I).

    An `encoder` is the part of the model that z does not touch: it reads x once, however many z follow, and the model reads
    its output in place of x. If `shared`, the learner does too. `published_kl` puts the reference's penalty in place of the
    KL, for comparison only: it takes precisions for variances (deviation D1).
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
        x, y = torch.cat([seen.x, asked.x], dim=1), torch.cat([answers(seen), answers(asked)], dim=1)
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
        self,
        belief: DiagonalGaussian,
        n: int,
        rng: torch.Generator | None,
        at_mode: bool,
        draws: int | None = None,
    ) -> list[Float[Tensor, "b n d"]]:
        """All the z that n queries are answered with."""
        return [self._draw(belief, n, rng, at_mode=at_mode) for _ in range(1 if at_mode else draws or self.samples)]

    def _penalty(self, belief: DiagonalGaussian) -> Float[Tensor, "b"]:
        if self.published_kl:
            return 0.5 * (belief.mean.square() + belief.precision - belief.precision.log() - 1).sum(-1)
        one = torch.ones_like(belief.precision)
        return belief.kl(DiagonalGaussian(one, 0 * one))


class GenerativeLatent(Generative[DiagonalGaussian], Latent):
    """There is no y; a model is what a draw of z makes of it."""

    def code(self, x: Float[Tensor, "b n *x"]) -> Float[Tensor, "b n *c"]:
        return self._encode(x)

    def models(
        self,
        state: DiagonalGaussian,
        n: int,
        *,
        rng: torch.Generator | None,
        at_mode: bool = False,
        draws: int | None = None,
    ) -> list[Model]:
        return [self._model(z) for z in self._draws(state, n, rng, at_mode, draws)]

    def _model(self, z: Float[Tensor, "b n d"]) -> Model:
        """Every picture has a z of its own."""
        return Model(
            len(z),
            lambda *inputs: self.run(self.model, *inputs, z),
            lambda u: self.run(cast(VAE, self.model).decode, u, z),
        )


class LatentVAE(OfVAE[DiagonalGaussian], GenerativeLatent):
    """A variational auto-encoder whose two halves both read z."""


class LatentDDPM(OfDDPM[DiagonalGaussian], GenerativeLatent):
    """A denoising diffusion model whose noise predictor reads z; its pictures have `shape`."""

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
