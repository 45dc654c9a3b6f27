"""Fast weights: layers that take one step of gradient descent after every example, in their exact dual form.

It knows vectors, losses and how to differentiate through the whole stream of steps; no episodes and no labels. `b`
learners stand side by side, each with a stream of its own. A model of fast layers is any function that calls
`layer(k, x)` for its k-th layer; fixed parts, such as a decoder, go between and after, and errors pass through them.

A step on one example changes a linear layer by a matrix of rank one, so the layer after `t` examples is

    W_t x + b_t = W_0 x + b_0 - rate * sum_{i<t} delta_i (<a_i, x> + 1)

with a_i its input and delta_i the gradient of the loss with respect to its output at example i. Keeping these two
vectors in place of a matrix for each learner and step makes the steps products of small matrices with the shared W_0,
and the memory that of the stream itself. The weights are one product, at the end:

    W_T = W_0 - rate * sum_t delta_t a_t^T,    b_T = b_0 - rate * sum_t delta_t
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.utils import _pytree as pytree

from sbmcl.state import state

Layer = Callable[[int, Tensor], Tensor]
"""`layer(k, x)` is the output `b n o` of fast layer `k`, as it is at this moment, for the inputs `b n i`."""

Loss = Callable[[Layer, Tensor, Any], Tensor]
"""`loss(layer, x, target)` is the loss of one example `x` (`b 1 i`) of each learner, summed over the learners.

It calls each fast layer once, layer 0 on `x`, and uses `x` for nothing else. It has to be differentiable twice and to
give the same whenever it is called: the backward pass calls it again, so noise comes in through `target` and fixed
networks stand `Still`.
"""


@state
class FastWeights:
    """Of one layer: the same for all learners (`o i`), or each learner's own (`b o i`)."""

    weight: Float[Tensor, "*b o i"]
    bias: Float[Tensor, "*b o"]

    def __call__(self, x: Float[Tensor, "b n i"]) -> Float[Tensor, "b n o"]:
        # Weights expanded but not yet changed are still one matrix, and a product with one is faster than with each
        same = self.weight.dim() == 3 and self.weight.stride(0) == 0
        return x @ (self.weight[0] if same else self.weight).mT + self.bias.unsqueeze(-2)

    def for_each(self, batch: int) -> "FastWeights":
        """From the same for all learners to each learner's own."""
        return FastWeights(self.weight.expand(batch, -1, -1), self.bias.expand(batch, -1))

    def redrawn(self, rng: torch.Generator) -> "FastWeights":
        """New random weights as a FastMLP starts with."""
        weight, bias = torch.empty_like(self.weight), torch.zeros_like(self.bias)
        return FastWeights(nn.init.xavier_normal_(weight, generator=rng), bias)


@state
class Steps:
    """What a layer has learned since its weights were last written down: its inputs and the errors at its outputs.

    A row for each example; or several where it is applied in several places of one, as a convolution is to all patches of
    a picture: the step is then the sum over them.
    """

    inputs: Float[Tensor, "b t i"]
    errors: Float[Tensor, "b t o"]

    def collapse(self, start: FastWeights, rate: Tensor) -> FastWeights:
        """The weights after these steps."""
        return FastWeights(
            start.weight - rate * self.errors.mT @ self.inputs, start.bias - rate * self.errors.sum(dim=1)
        )


class Still:
    """Runs parts of a network as they are when it is frozen: batch-norms go by their averages of this moment, nothing is
    dropped, and nothing moves.

    So it runs them in the steps of a stream, in meta-training too: what one example does must not depend on who else is in
    the batch, and has to be the same when the backward pass comes by again, after the averages have moved.
    """

    def __init__(self, network: nn.Module):
        self.within = _Within(network)
        self.averages = {name: buffer.clone() for name, buffer in self.within.named_buffers()}

    def __call__(self, part: Callable[..., Tensor], *inputs: Float[Tensor, "b n ..."]) -> Float[Tensor, "b n ..."]:
        """A part of the network, over the examples of all learners at once."""
        network = self.within.network
        moving = network.training
        network.eval()
        try:
            flat = functional_call(self.within, self.averages, (part, *(x.flatten(0, 1) for x in inputs)))
        finally:
            network.train(moving)
        return flat.unflatten(0, inputs[0].shape[:2])


class _Within(nn.Module):
    """Lets `functional_call` put buffers into a network while a part of it runs."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return part(*inputs)


class FastMLP(nn.Module):
    """The initial weights of Linear, ReLU, Linear: Xavier-normal, biases zero."""

    def __init__(self, inputs: int, out: int, *, hidden: int = 512):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, hidden), nn.Linear(hidden, out)])
        for layer in self.linears:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def linears(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    @property
    def last(self) -> nn.Linear:
        return self.linears[-1]

    def start(self) -> tuple[FastWeights, ...]:
        return tuple(FastWeights(layer.weight, layer.bias) for layer in self.linears)

    def weights(self) -> list[nn.Parameter]:
        """What `start` is made of."""
        return list(self.parameters())

    def through(self, layer: Layer, x: Float[Tensor, "b n i"], first: int = 0) -> Float[Tensor, "b n o"]:
        """`first` counts the layers that go before."""
        return layer(first + 1, layer(first, x).relu())


class FastVAE(nn.Module):
    """The initial weights of a variational auto-encoder's fast layers: two from the code of a picture to the mean and
    log-variance of u, and two from u to what a decoder reads."""

    def __init__(self, inputs: int, latent: int, out: int, *, hidden: int = 512):
        super().__init__()
        self.to_latent = FastMLP(inputs, 2 * latent, hidden=hidden)
        self.from_latent = FastMLP(latent, out, hidden=hidden)

    def start(self) -> tuple[FastWeights, ...]:
        return self.to_latent.start() + self.from_latent.start()

    def weights(self) -> list[nn.Parameter]:
        return list(self.parameters())

    def infer(self, layer: Layer, x: Float[Tensor, "b n i"]) -> Float[Tensor, "b n o"]:
        return self.to_latent.through(layer, x)

    def decode(self, layer: Layer, u: Float[Tensor, "b n u"]) -> Float[Tensor, "b n o"]:
        return self.from_latent.through(layer, u, first=2)


def descend(
    loss: Loss,
    start: Sequence[FastWeights],
    rate: Float[Tensor, ""],
    x: Float[Tensor, "b t i"],
    target: Any,
    fixed: Sequence[nn.Parameter] = (),
) -> list[Steps]:
    """One step of gradient descent on each example of `x` in turn, in all layers at once.

    `target` is any tree of tensors `b t ...`. Gradients flow to `start`, `rate`, `x`, to whatever of `target` asks for
    them, and to `fixed`: the parameters of what stands between or after the layers in `loss`. The first layer's inputs
    are all known beforehand, so its part of the work is done for the whole stream at once.
    """
    known = start[0](x)
    gram = rate * (x @ x.mT + 1)
    later = [part for weights in start[1:] for part in (weights.weight, weights.bias)]
    leaves, form = pytree.tree_flatten(target)
    sizes = [len(later), len(fixed), len(leaves)]
    first, *rest = _Descent.apply(loss, form, sizes, known, gram, rate, *later, *fixed, *leaves)  # pyright: ignore
    return [Steps(x, first), *(Steps(a, delta) for a, delta in zip(rest[::2], rest[1::2], strict=True))]


class _Descent(torch.autograd.Function):
    """The recursion over examples. It keeps the first layer's errors, then every later layer's inputs and errors.

    The backward pass needs no more than them and the first layer's outputs: it repeats each step, last one first, and
    differentiates it. What an example changes in later steps has all been collected when its own step's turn comes.
    """

    @staticmethod
    def forward(ctx: Any, loss: Loss, form: Any, sizes: list[int], *given: Tensor) -> tuple[Tensor, ...]:
        known, gram, rate, *rest = given
        later, fixed, leaves = _split(rest, sizes)
        batch, length, _ = known.shape
        outputs, kept = torch.empty_like(known), [torch.empty_like(known)]
        kept += [known.new_empty(batch, 0, units) for weight in later[::2] for units in weight.shape[:-3:-1]]
        for t in range(length):
            now, past = slice(t, t + 1), [_rows(part, length, 0, t) for part in kept]
            outputs[:, now] = torch.baddbmm(known[:, now], gram[:, now, :t], past[0], alpha=-1)
            target = pytree.tree_unflatten([leaf[:, now].detach() for leaf in leaves], form)
            new = _step(loss, target, outputs[:, now], rate, later, past[1:], differentiable=False)
            if t == 0:  # now it is known how many rows an example has in each layer
                kept[1:] = [part.new_empty(batch, length * part.shape[1], part.shape[2]) for part in new[1:]]
            for part, value in zip(kept, new, strict=True):
                _rows(part, length, t, t + 1).copy_(value)
        ctx.save_for_backward(gram, outputs, rate, *later, *leaves, *kept)
        ctx.loss, ctx.form, ctx.sizes, ctx.fixed = loss, form, [1 + len(later), len(leaves), len(kept)], fixed
        return tuple(kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        gram, outputs, *saved = ctx.saved_tensors
        shared, leaves, kept = _split(saved, ctx.sizes)
        shared, length, wanted = (
            _leaves(shared),
            gram.shape[1],
            ctx.needs_input_grad[len(ctx.needs_input_grad) - len(leaves) :],
        )
        to_first, *to_rest = (slope.clone() for slope in slopes)
        to_outputs = torch.empty_like(outputs)
        sums = [torch.zeros_like(part) for part in (*shared, *ctx.fixed)]
        to_leaves = [torch.zeros_like(leaf) if want else None for leaf, want in zip(leaves, wanted, strict=True)]
        for t in reversed(range(length)):
            now, after = slice(t, t + 1), slice(t + 1, None)
            to_first[:, now] -= gram[:, after, now].mT @ to_outputs[:, after]
            output, *past = _leaves([outputs[:, now], *(_rows(part, length, 0, t) for part in kept[1:])])
            shown = [leaf[:, now].detach().requires_grad_(want) for leaf, want in zip(leaves, wanted, strict=True)]
            target = pytree.tree_unflatten(shown, ctx.form)
            new = _step(ctx.loss, target, output, shared[0], shared[1:], past, differentiable=True)
            inputs = (output, *past, *shared, *ctx.fixed, *(leaf for leaf in shown if leaf.requires_grad))
            own = [_rows(slope, length, t, t + 1) for slope in (to_first, *to_rest)]
            to_output, *found = torch.autograd.grad(new, inputs, own, materialize_grads=True)
            to_outputs[:, now] = to_output
            totals = [*(_rows(slope, length, 0, t) for slope in to_rest), *sums]
            totals += [slope[:, now] for slope in to_leaves if slope is not None]
            for total, part in zip(totals, found, strict=True):
                total += part
        to_gram = -(to_outputs @ kept[0].mT).tril(-1)
        return None, None, None, to_outputs, to_gram, *sums, *to_leaves


@torch.enable_grad()
def _step(
    loss: Loss,
    target: Any,
    first: Float[Tensor, "b 1 o"],
    rate: Tensor,
    later: Sequence[Tensor],
    past: Sequence[Tensor],
    *,
    differentiable: bool,
) -> tuple[Tensor, ...]:
    """What one example adds to what is kept. `first` is what the first layer makes of it; weights and biases of the
    layers after that are `later`, and their inputs and errors so far are `past`."""
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {0: first if first.requires_grad else first.detach().requires_grad_()}

    def layer(k: int, x: Tensor) -> Tensor:
        if k > 0:
            weight, bias, a, delta = *later[2 * k - 2 : 2 * k], *past[2 * k - 2 : 2 * k]
            inputs[k] = x
            out = torch.baddbmm(FastWeights(weight, bias)(x), rate * (x @ a.mT + 1), delta, alpha=-1)
            outputs[k] = out if out.requires_grad else out.requires_grad_()
        return outputs[k]

    total = loss(layer, first, target)
    places = range(len(later) // 2 + 1)
    errors = torch.autograd.grad(total, [outputs[k] for k in places], create_graph=differentiable)
    return errors[0], *(part for k in places[1:] for part in (inputs[k], errors[k]))


def _leaves(parts: Sequence[Tensor]) -> list[Tensor]:
    return [part.detach().requires_grad_() for part in parts]


def _rows(part: Tensor, length: int, first: int, last: int) -> Tensor:
    """Of the examples from `first` to before `last` of so many."""
    each = part.shape[1] // length
    return part[:, first * each : last * each]


def _split(parts: Sequence[Tensor], sizes: Sequence[int]) -> list[list[Tensor]]:
    rest = iter(parts)
    return [list(islice(rest, size)) for size in sizes]
