"""What stands between an input and the belief: scaling, a frozen network, and a hash that says which one it is."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from sbmcl.data.episodes import EpisodeShape, EpisodeSource, Kind
from sbmcl.data.vectors import VectorEpisodes
from sbmcl.episode import Episode
from sbmcl.evaluate import Trained
from sbmcl.experiment import Experiment
from sbmcl.methods.base import PIECE, Method

Network = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Scale:
    """Numbers as the network was trained on them: their mean taken out, divided by their deviation."""

    mean: Float[Tensor, "d"]
    deviation: Float[Tensor, "d"]

    def apply(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return (x - self.mean) / self.deviation

    def undo(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return x * self.deviation + self.mean


@dataclass(frozen=True)
class Shapes:
    """As much of an episode source as a method is built from, so that a saved learner needs no data set."""

    kind: Kind
    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    query_cap: int = 0

    @classmethod
    def of(cls, source: EpisodeSource) -> "Shapes":
        return cls(source.kind, tuple(source.x_shape), tuple(source.y_shape))

    def draw(self, shape: EpisodeShape, batch: int, rng: torch.Generator) -> Episode:
        raise ValueError("no episodes can be drawn from shapes alone")

    def check(self, shape: EpisodeShape) -> None:
        raise ValueError("no episodes can be drawn from shapes alone")


@dataclass(frozen=True)
class Origin:
    """The run that a network is from: all that it takes to build it again."""

    experiment: Experiment[Any, Any]
    shapes: Shapes
    method: Method[Any]
    step: int


@dataclass(frozen=True)
class Encoder:
    network: Network | None
    """None: inputs are vectors, and are used as they are."""
    identity: str
    """Learners with another one do not merge, and a saved learner refuses another one."""
    x_shape: tuple[int, ...] | None = None
    """None: whatever the network takes."""
    x_scale: Scale | None = None
    y_scale: Scale | None = None
    origin: Origin | None = field(default=None, compare=False)

    @classmethod
    def of(cls, network: Network | None, name: str | None, dim: int) -> "Encoder":
        if network is None:
            return cls(None, "none", (dim,))
        if isinstance(network, nn.Module):
            if network.training:
                raise ValueError(
                    "the encoder is in training mode, where what it makes of an example may depend on the others and may "
                    "change it; call .eval() on it first"
                )
            return cls(_in_pieces(network), f"{name or type(network).__name__} {weights_hash(network)}")
        name = str(name or getattr(network, "__qualname__", "<"))
        if "<" in name:
            raise ValueError("a function has no weights to tell it by; say which one it is with name='...'")
        return cls(_in_pieces(network), name)

    @classmethod
    def of_run(cls, trained: Trained) -> "Encoder":
        source = trained.experiment.data.source("train")
        assert source is not None, "only a validation split may be switched off"
        scales = _scales(source) if isinstance(source, VectorEpisodes) else (None, None)
        origin = Origin(trained.experiment, Shapes.of(source), trained.method, trained.step)
        return cls.of_origin(origin, *scales)

    @classmethod
    def of_origin(cls, origin: Origin, x_scale: Scale | None, y_scale: Scale | None) -> "Encoder":
        method = origin.method
        method.bf16 = False

        def network(x: Tensor) -> Tensor:
            x = x.to(method.device, method.dtype).unsqueeze(0)
            return method.run(method.encoder, x).squeeze(0)  # pyright: ignore[reportArgumentType]

        scales = b"".join(t.numpy().tobytes() for s in (x_scale, y_scale) if s for t in (s.mean, s.deviation))
        identity = f"{type(method).__name__} {weights_hash(method, scales)}"
        return cls(network, identity, origin.shapes.x_shape, x_scale, y_scale, origin)

    def inputs(self, x: Any) -> Shaped[Tensor, "n *x"]:
        """As floats of the right shape. Pictures of whole bytes become numbers from -1 to 1, as in training."""
        t = as_tensor(x)
        if t.dtype == torch.uint8 and self.origin is not None and t.dim() > 2:
            t = t.float() / 127.5 - 1
        if t.dtype.is_complex or t.dim() < 2:
            raise ValueError(
                f"X holds examples in rows, as (n, ...) real numbers, but is {t.dtype} of {tuple(t.shape)}"
            )
        if self.x_shape is not None and tuple(t.shape[1:]) != self.x_shape:
            raise ValueError(f"an example has shape {self.x_shape} here, but X is {tuple(t.shape)}")
        t = t if t.is_floating_point() else t.double()
        if not bool(torch.isfinite(t).all()):
            raise ValueError("X has numbers that are not finite (NaN or inf), from which nothing can be learned")
        return t if self.x_scale is None else self.x_scale.apply(t)

    @torch.no_grad()
    def codes(self, x: Shaped[Tensor, "n *x"], *, one_by_one: bool) -> Float[Tensor, "n d"]:
        """Alone, an example's code is a function of the example; side by side, rounding also depends on the others."""
        if self.network is None:
            return x.double()
        pieces = x.split(1 if one_by_one else PIECE)
        codes = torch.cat([self.network(piece).detach().cpu().double() for piece in pieces])
        if codes.dim() != 2 or len(codes) != len(x):
            raise ValueError(
                f"the encoder made {tuple(codes.shape)} of {len(x)} examples; it should make (n, d) numbers"
            )
        if not bool(torch.isfinite(codes).all()):
            raise ValueError("the encoder made numbers that are not finite (NaN or inf) of X")
        return codes


def as_tensor(x: Any) -> Tensor:
    """Of whatever NumPy takes; without copying, where torch can use the memory as it is."""
    if isinstance(x, Tensor):
        return x
    found = np.asarray(x)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"these should be real numbers, but they are {found.dtype} of shape {found.shape}")
    usable = found.flags.writeable and all(step > 0 for step in found.strides)
    return torch.from_numpy(
        found if usable and found.dtype.isnative else found.astype(found.dtype.newbyteorder("="), copy=True)
    )


def weights_hash(module: nn.Module, more: bytes = b"") -> str:
    """Of every number in it, by name, and of the kind of every module: two networks may differ in nothing but a ReLU."""
    found = hashlib.sha256(more)
    for name, part in module.named_modules():
        found.update(f"{name} {type(part).__qualname__}\n".encode())
    for name, value in sorted(module.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _in_pieces(network: Network) -> Network:
    if not isinstance(network, nn.Module):
        return network
    first = next(network.parameters(), None)
    return network if first is None else lambda x: network(x.to(first.device, first.dtype))


def _scales(source: VectorEpisodes) -> tuple[Scale | None, Scale | None]:
    """Of the inputs and, in a regression, of the targets, which are the last numbers of a vector."""
    inputs, width = source.x_shape[0], source.store.item_shape[0]
    mean, deviation = source.mean.expand(width).clone(), source.deviation.expand(width).clone()
    targets = Scale(mean[inputs:], deviation[inputs:]) if inputs < width else None
    return Scale(mean[:inputs], deviation[:inputs]), targets
