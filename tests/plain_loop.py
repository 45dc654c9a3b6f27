"""The plain way to learn with fast weights: every episode has matrices of its own, and `grad` changes all of them after each
example. Slow, and hungry for memory when differentiated; the oracle of the dual form, and what benchmarks compare it with.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

Weights = dict[str, Tensor]


def final_weights(
    net: nn.Module,
    rate: Tensor,
    x: Tensor,
    y: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    start: Weights | None = None,
) -> Weights:
    """Of `b` streams of `t` examples (`b t ...`), after a step on each example; `loss` is that of one output and target."""
    initial = start or dict(net.named_parameters())

    def of_example(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(net, weights, (x,)), y)

    def of_stream(x: Tensor, y: Tensor) -> Weights:
        weights = initial
        for t in range(len(x)):
            slope = grad(of_example)(weights, x[t], y[t])
            weights = {name: weights[name] - rate * slope[name] for name in weights}
        return weights

    return vmap(of_stream)(x, y)


def outputs(net: nn.Module, weights: Weights, x: Tensor) -> Tensor:
    """Of queries `b n ...`, each asked with the weights of its own stream."""
    return vmap(lambda weights, x: functional_call(net, weights, (x,)))(weights, x)
