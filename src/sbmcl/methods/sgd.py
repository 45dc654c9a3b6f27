"""Learning from scratch with a standard optimiser: Offline and Online, the two ends that meta-learning is compared with.

Nothing here is meta-trained. Every stream gets a network of its own, freshly initialised; all of them train side by side.
To learn something else this way, bring a network (inputs to a prediction) and the head whose loss judges that prediction.
Such a network must not draw at random (no dropout): what is learned may not depend on how a stream is cut.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from sbmcl.episode import Episode, Examples
from sbmcl.heads import Head
from sbmcl.methods.base import Losses, Method
from sbmcl.methods.codes import labels
from sbmcl.methods.generative import Generative, Model, OfDDPM, OfVAE, Questions
from sbmcl.state import map_tensors, state

S = TypeVar("S")


@state
class Models:
    """`b` networks of one architecture, each a row of `p` weights, and what Adam remembers of each."""

    weights: Float[Tensor, "b p"]
    averages: dict[str, Shaped[Tensor, "b *"]]  # the networks' buffers: a batch-norm's running averages
    first: Float[Tensor, "b p"]  # moments of the gradient
    second: Float[Tensor, "b p"]
    steps: Int[Tensor, "b"]
    classes: Int[Tensor, "b"]  # met so far, hence the outputs in use; 0 where no classes are asked for
    questions: Questions | None  # where what is asked of examples is random


@state
class Batch:
    x: Float[Tensor, "b n *x"]
    y: Shaped[Tensor, "b n *y"] | None  # None: x is what is learned

    def __len__(self) -> int:
        return self.x.shape[1]

    def __getitem__(self, span: slice) -> "Batch":
        return map_tensors(lambda part: part[:, span], self)

    def then(self, other: "Batch") -> "Batch":
        return pytree.tree_map(lambda *parts: torch.cat(parts, dim=1), self, other)


class FromScratch(Method[S]):
    """What both learners share: fresh networks, and steps of Adam on all of them at once.

    The answers of a classifier are the classes met so far; the outputs of all others are left out of the softmax, since a
    learner cannot know how many will come. The learning rate is halved every `halve_every` steps.
    """

    seed: Tensor

    def __init__(
        self,
        build: Callable[[], nn.Module],
        head: Head,
        x_shape: tuple[int, ...],
        y_shape: tuple[int, ...],
        *,
        lr: float,
        halve_every: int,
        batch: int,
        classes: int = 0,
    ):
        super().__init__()
        self.head = head
        self.network = build()  # the architecture, and what a stream starts from when it is given no generator
        self.build = build
        self.x_shape, self.y_shape = x_shape, y_shape
        self.lr, self.halve_every, self.batch = lr, halve_every, batch
        self.classes = classes  # outputs of a classifier; 0 for anything else
        # Of this run: so that two runs asked the same episodes start from different networks
        self.register_buffer("seed", torch.randint(2**31, ()))

    def meta_loss(self, episode: Episode, *, rng: torch.Generator | None = None) -> Losses:
        raise TypeError(f"{type(self).__name__} learns every stream from scratch; there is nothing to meta-train")

    def fresh(self, batch: int, rng: torch.Generator | None) -> Models:
        """Independent networks drawn from `rng`, or the same one for all without it."""
        networks = [self.network] * batch
        if rng is not None:
            seeds = torch.randint(2**31, (batch,), generator=rng, device=rng.device).tolist()
            networks = [self._built(int(self.seed) ^ seed) for seed in seeds]
        like = {"device": self.device, "dtype": self.dtype}
        weights = torch.stack([nn.utils.parameters_to_vector(network.parameters()).detach() for network in networks])
        averages = {
            name: torch.stack([dict(network.named_buffers())[name] for network in networks]).to(one)
            for name, one in self.network.named_buffers()
        }
        none, nothing = torch.zeros_like(weights, **like), torch.zeros(batch, dtype=torch.long, device=self.device)
        return Models(weights.to(**like), averages, none, none, nothing, nothing, self._questions(batch, rng))

    def fit(self, models: Models, batches: Iterable[Batch]) -> Models:
        """One step of Adam on every network for each batch; the models that were given stay as they are."""
        weights = models.weights.detach().clone().requires_grad_()
        moments = {"exp_avg": models.first.clone(), "exp_avg_sq": models.second.clone()}
        averages, steps, classes = map_tensors(torch.clone, models.averages), models.steps, models.classes
        questions = models.questions
        adam = torch.optim.Adam([weights], self.lr, fused=True)
        adam.state[weights] = {"step": steps[0].to(torch.float32), **moments}
        done = int(steps[0])  # the networks side by side have all taken the same number
        self.network.train()
        for step, batch in enumerate(batches, done):
            inputs, target, questions = self._asked(batch, questions)
            if self.classes:
                classes = torch.maximum(classes, target.amax(1) + 1)
            with torch.enable_grad():
                prediction = self._run(weights, averages, classes, *inputs)
                # A mean over networks that do not meet: times their number, each gets the gradient of its own mean
                loss = self.head.at(step).loss(prediction, target) * len(weights)
            (weights.grad,) = torch.autograd.grad(loss, weights)
            adam.param_groups[0]["lr"] = self.lr * 0.5 ** (step // self.halve_every)
            adam.step()
            steps = steps + 1
        return Models(weights.detach(), averages, moments["exp_avg"], moments["exp_avg_sq"], steps, classes, questions)

    @abstractmethod
    def trained(self, state: S, rng: torch.Generator | None) -> Models:
        """The networks that answer."""

    def predict(
        self,
        state: S,
        x: Float[Tensor, "b n *x"],
        *,
        rng: torch.Generator | None = None,
        at_mode: bool = False,
    ) -> Any:
        return self.answer(self.trained(state, rng), x)

    def answer(self, models: Models, *inputs: Shaped[Tensor, "b n ..."], part: str = "") -> Any:
        """Of the networks, or of a part of them that has a name."""
        self.network.eval()
        return self._run(models.weights, models.averages, models.classes, *inputs, part=part)

    def batch_of(self, examples: Examples) -> Batch:
        """What is learned of examples."""
        if not self.classes:
            return Batch(examples.x, examples.targets)
        label = labels(examples)
        if label.numel() and (int(label.min()) < 0 or int(label.max()) >= self.classes):
            raise ValueError(
                f"labels count from 0 and this network has outputs for {self.classes} classes, but got labels from "
                f"{int(label.min())} to {int(label.max())}; map them to 0..c-1, or set method.classes higher"
            )
        return Batch(examples.x, label)

    def empty(self, batch: int) -> Batch:
        y = torch.long if self.classes else self.dtype
        return Batch(
            torch.zeros(batch, 0, *self.x_shape, dtype=self.dtype, device=self.device),
            torch.zeros(batch, 0, *self.y_shape, dtype=y, device=self.device),
        )

    def _questions(self, batch: int, rng: torch.Generator | None) -> Questions | None:
        return None

    def _asked(self, batch: Batch, questions: Questions | None) -> tuple[tuple[Tensor, ...], Tensor, Questions | None]:
        """What the networks are given of a batch, what they are judged by, and the questions that are left."""
        assert batch.y is not None
        return (batch.x,), batch.y, questions

    def _built(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            return self.build()

    def _run(
        self,
        weights: Float[Tensor, "b p"],
        averages: dict[str, Tensor],
        classes: Tensor,
        *inputs: Shaped[Tensor, "b n ..."],
        part: str = "",
    ) -> Any:
        """Every network on the examples of its own episode. In training mode the averages move, in place."""
        like, network, prefix = (
            dict(self.network.named_parameters()),
            self.network.get_submodule(part),
            part and f"{part}.",
        )

        def one(weights: Tensor, averages: dict[str, Tensor], *inputs: Tensor) -> Any:
            pieces = weights.split([p.numel() for p in like.values()])
            whole = {name: piece.view_as(like[name]) for name, piece in zip(like, pieces, strict=True)} | averages
            own = {name.removeprefix(prefix): value for name, value in whole.items() if name.startswith(prefix)}
            return functional_call(network, own, inputs)

        prediction = side_by_side(one, weights, averages, *inputs)
        if self.classes:
            unmet = torch.arange(prediction.shape[-1], device=weights.device) >= classes.clamp_min(1)[:, None, None]
            return prediction.masked_fill(unmet, -torch.inf)
        return prediction


@state
class OnlineState:
    models: Models
    waiting: Batch  # examples that no full batch has come together of yet; nothing was learned of them


class Online(FromScratch[OnlineState]):
    """One pass over the stream in its own order, a step of Adam for every `batch` consecutive examples.

    Published is a pass over the shuffled stream, which a learner that keeps nothing of the stream cannot make; that one is
    `Offline` without `steps`. Two examples a batch are the fewest that a batch-norm trains on.
    """

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> OnlineState:
        return OnlineState(self.fresh(batch, rng), self.empty(batch))

    def learn(self, state: OnlineState, examples: Examples) -> OnlineState:
        batch = state.waiting.then(self.batch_of(examples))
        whole = len(batch) - len(batch) % self.batch
        steps = (batch[first : first + self.batch] for first in range(0, whole, self.batch))
        waiting = map_tensors(torch.clone, batch[whole:])  # a view would keep the whole chunk alive
        return OnlineState(self.fit(state.models, steps), waiting)

    def trained(self, state: OnlineState, rng: torch.Generator | None) -> Models:
        return state.models


class Offline(FromScratch[Batch]):
    """Keeps every example and trains on them when it is asked, for `steps` batches drawn with replacement.

    Without `steps` it is a single pass in random order. The network that answers is the one after the last step; published
    is the best of many on the test examples.
    """

    def __init__(self, *arguments: Any, steps: int | None = None, **options: Any):
        super().__init__(*arguments, **options)
        self.steps = steps

    def init(self, batch: int, *, rng: torch.Generator | None = None) -> Batch:
        return self.empty(batch)

    def learn(self, state: Batch, examples: Examples) -> Batch:
        return state.then(self.batch_of(examples))

    def trained(self, state: Batch, rng: torch.Generator | None) -> Models:
        models = self.fresh(len(state.x), rng)
        if not len(state):
            return models
        if self.classes:
            assert state.y is not None
            models = replace(models, classes=state.y.amax(1) + 1)
        return self.fit(models, self._batches(state, rng or torch.Generator(self.device).manual_seed(0)))

    def _batches(self, examples: Batch, rng: torch.Generator) -> Iterator[Batch]:
        episode = torch.arange(len(examples.x), device=examples.x.device).unsqueeze(-1)
        for chosen in self._choices(len(episode), len(examples), rng):
            yield map_tensors(lambda part, chosen=chosen: part[episode, chosen], examples)

    def _choices(self, episodes: int, examples: int, rng: torch.Generator) -> Iterator[Int[Tensor, "b n"]]:
        if self.steps is None:
            order = torch.rand(episodes, examples, generator=rng, device=rng.device).argsort(-1)
            yield from order[:, : examples - examples % self.batch].split(self.batch, dim=1)
        else:
            for _ in range(self.steps):
                yield torch.randint(examples, (episodes, self.batch), generator=rng, device=rng.device)


class GenerativeFromScratch(Generative[S], FromScratch[S]):
    """There is no y; a network is asked about the pictures of a batch with noise that belongs to its stream."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.shape = self.x_shape

    def batch_of(self, examples: Examples) -> Batch:
        return Batch(examples.x, None)

    def empty(self, batch: int) -> Batch:
        return replace(super().empty(batch), y=None)

    def models(
        self, state: S, n: int, *, rng: torch.Generator | None, at_mode: bool = False, draws: int | None = None
    ) -> list[Model]:
        models = self.trained(state, rng)
        return [
            Model(
                len(models.weights),
                lambda *inputs: self.answer(models, *inputs),
                lambda u: self.answer(models, u, part="decoder"),
            )
        ]

    def _questions(self, batch: int, rng: torch.Generator | None) -> Questions:
        return Questions.of(batch, rng, self.device)

    def _asked(self, batch: Batch, questions: Questions | None) -> tuple[tuple[Tensor, ...], Tensor, Questions]:
        assert questions is not None
        (inputs, target), later = questions.ask(self.head, batch.x)
        return inputs, target, later


class OnlineVAE(OfVAE[OnlineState], GenerativeFromScratch[OnlineState], Online):
    """The network is a variational auto-encoder."""


class OfflineVAE(OfVAE[Batch], GenerativeFromScratch[Batch], Offline):
    """The network is a variational auto-encoder."""


class OnlineDDPM(OfDDPM[OnlineState], GenerativeFromScratch[OnlineState], Online):
    """The network is that of a diffusion model."""


class OfflineDDPM(OfDDPM[Batch], GenerativeFromScratch[Batch], Offline):
    """The network is that of a diffusion model."""


def side_by_side(function: Callable[..., Any], *trees: Any) -> Any:
    """A function of single episodes, for trees of tensors whose first axis counts episodes.

    On a GPU in one batched call; on a CPU one after another, which is faster there since a convolution with weights of
    every episode's own has no fast kernel.
    """
    if not pytree.tree_leaves(trees)[0].is_cpu:
        return torch.vmap(function, randomness="different")(*trees)
    leaves, form = pytree.tree_flatten(trees)
    rows = zip(*(leaf.unbind() for leaf in leaves), strict=True)
    each = [function(*pytree.tree_unflatten(row, form)) for row in rows]
    return pytree.tree_map(lambda *parts: torch.stack(parts), *each)
