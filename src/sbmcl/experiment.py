"""One experiment as plain data: what is drawn, what learns, how it is trained. Everything that can be set is on this page.

Imports no torch until something is built, so that listings and `--help` are instant. To bring your own method or data,
subclass `MethodConfig` or `DataConfig`, give it a `build`, and return an `Experiment` with it from a recipe.
"""

import types
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, Union, get_args, get_origin

from sbmcl.data.episodes import EpisodeShape, EpisodeSource

if TYPE_CHECKING:
    import torch

    from sbmcl.methods.base import Method

Split = Literal["train", "validation", "test"]


class DataConfig(ABC):
    """A data set and how its classes are split."""

    name: ClassVar[str]
    tags: ClassVar[dict[str, type["DataConfig"]]] = {}

    def __init_subclass__(cls) -> None:
        DataConfig.tags[cls.__name__] = cls

    @abstractmethod
    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource | None:
        """Where episodes of a split are drawn from; None for a validation split that was switched off."""


@dataclass(frozen=True)
class Sine(DataConfig):
    """Sine regression; every split is fresh draws of the same distribution."""

    name: ClassVar[str] = "sine"

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        from sbmcl.data.sine import SineSource

        return SineSource()


@dataclass(frozen=True)
class Omniglot(DataConfig):
    """Omniglot characters: meta-train on the background alphabets, meta-test on the evaluation alphabets."""

    name: ClassVar[str] = "omniglot"

    validation: float = 0.1
    """Share of meta-train characters held out for choosing between models; 0 trains on all of them, as published."""
    orientations: Literal[1, 8] = 8
    """Classes made of each meta-train character by quarter turns and mirroring."""
    degrees: float = 0.0
    """Meta-train pictures are turned by up to so many degrees."""
    shear: float = 0.0
    """Meta-train pictures are sheared by up to so many degrees."""
    scale: float = 0.0
    """Each axis of meta-train pictures is scaled by up to 1 +- this."""
    shift: float = 0.0
    """Meta-train pictures are moved by up to this share of their width."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation is a share of the classes, 0 <= share < 1, but got {self.validation}")

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource | None:
        from sbmcl.data import omniglot
        from sbmcl.data.images import ImageClassification, Jitter, split_classes

        if split == "test":
            return ImageClassification(omniglot.load("evaluation"), query_cap=10, device=device)
        if split == "validation" and self.validation == 0:
            return None
        store = omniglot.load("background")
        train, held_out = split_classes(store.class_names, self.validation, seed=0)
        if split == "validation":
            return ImageClassification(store, held_out, query_cap=10, device=device)
        jitter = Jitter(self.degrees, self.shear, self.scale, self.shift)
        return ImageClassification(
            store, train, orientations=self.orientations, jitter=jitter, query_cap=10, device=device
        )


DATA: dict[str, type[DataConfig]] = {data.name: data for data in (Sine, Omniglot)}


class MethodConfig(ABC):
    """The hyperparameters of a method, and how to build it for a data set."""

    tags: ClassVar[dict[str, type["MethodConfig"]]] = {}

    def __init_subclass__(cls) -> None:
        MethodConfig.tags[cls.__name__] = cls

    @abstractmethod
    def build(self, source: EpisodeSource) -> "Method[Any]":
        """A freshly initialised method for what this source draws (torch's global seed decides the weights)."""


@dataclass(frozen=True)
class GeMCL(MethodConfig):
    """Per-class Normal-Gamma beliefs on the outputs of a convolutional encoder."""

    width: int = 512
    """Dimensions of the encoder's output."""
    shape: float = 100.0
    """Initial a0 of the prior over precisions."""
    rate: float = 1000.0
    """Initial b0 of the prior over precisions."""
    count: float = 0.0
    """Initial k0: how many examples the prior on a class mean is worth; 0 is the published flat prior."""
    tempered: bool = False
    """Learn a temperature of the log-scores."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.conjugate import GeMCL as Build
        from sbmcl.nets.conv import ConvEncoder

        encoder = ConvEncoder(*_image_shape(source), self.width)
        return Build(
            encoder, self.width, shape=self.shape, rate=self.rate, count=self.count, tempered=self.tempered
        )


@dataclass(frozen=True)
class PN(MethodConfig):
    """Prototypical networks: isotropic Gaussian beliefs on the outputs of a convolutional encoder."""

    width: int = 512
    """Dimensions of the encoder's output."""
    variance: float = 0.5
    """Initial variance of a class around its prototype."""
    precision: float = 0.0
    """Initial precision of the prior on prototypes; 0 is the published flat prior."""
    tempered: bool = False
    """Learn a temperature of the log-scores."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.conjugate import PN as Build
        from sbmcl.nets.conv import ConvEncoder

        encoder = ConvEncoder(*_image_shape(source), self.width)
        return Build(encoder, self.width, variance=self.variance, precision=self.precision, tempered=self.tempered)


@dataclass(frozen=True)
class ALPaCA(MethodConfig):
    """Bayesian linear regression on the outputs of an MLP."""

    width: int = 512
    """Dimensions of the features, so the belief is width x width."""
    hidden: int = 512
    """Units of the encoder's hidden layers."""
    depth: int = 2
    """Linear layers of the encoder; 2 is the published one."""
    loss: Literal["mse", "nll"] = "mse"
    """Squared error of the predictive mean (as published) or the exact predictive log-likelihood."""
    noise: float = 0.1
    """Initial standard deviation of the observations."""

    def build(self, source: EpisodeSource) -> "Method[Any]":
        from sbmcl.methods.conjugate import ALPaCA as Build
        from sbmcl.nets.mlp import MLP

        if len(source.x_shape) != 1 or len(source.y_shape) != 1:
            raise ValueError(f"ALPaCA maps vectors to vectors, but here x is {source.x_shape} and y {source.y_shape}")
        encoder = MLP(source.x_shape[0], self.width, hidden=self.hidden, depth=self.depth, final="relu")
        return Build(encoder, self.width, source.y_shape[0], loss=self.loss, noise=self.noise)


def _image_shape(source: EpisodeSource) -> tuple[int, int, int]:
    if len(source.x_shape) != 3 or source.y_shape:
        raise ValueError(f"this method classifies pictures, but here x is {source.x_shape} and y {source.y_shape}")
    channels, height, width = source.x_shape
    return channels, height, width


@dataclass(frozen=True)
class Training:
    """The outer loop."""

    steps: int = 50_000
    """Meta-training steps."""
    episodes: int = 16
    """Episodes in a step."""
    shape: EpisodeShape = field(default_factory=EpisodeShape)
    """The episodes trained on."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    schedule: Literal["constant", "halve", "cosine"] = "halve"
    """Of the learning rate: `halve` every `halve_every` steps (as published), or a cosine to zero after the warm-up."""
    halve_every: int = 10_000
    warmup: int = 0
    """Steps over which the learning rate rises from zero."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW)."""
    clip: float = 0.0
    """Largest norm of the gradient; 0 leaves it alone."""
    ema: float = 0.0
    """Decay of a running average of the weights, which is then what is evaluated; 0 evaluates the weights themselves."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Of the networks; beliefs are always float32. `auto` is bf16 where the encoder is convolutional."""
    compile: bool = False
    """Compile the encoder with torch.compile: a minute of waiting for a faster step."""
    log_every: int = 50
    """Steps between lines of the log."""
    validate_every: int = 1_000
    """Steps between checks on the validation split."""
    validation_episodes: int = 64
    checkpoint_every: int = 500
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        for name in ("steps", "episodes", "halve_every", "log_every", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} counts from 1, but got {getattr(self, name)}")
        for name in ("warmup", "weight_decay", "clip"):
            if getattr(self, name) < 0:
                raise ValueError(f"training.{name} cannot be negative, but got {getattr(self, name)}")
        if self.lr <= 0:
            raise ValueError(f"training.lr must be positive, but got {self.lr}")
        if not 0 <= self.ema < 1:
            raise ValueError(f"training.ema is a decay, 0 <= decay < 1, but got {self.ema}")


D = TypeVar("D", bound=DataConfig)
M = TypeVar("M", bound=MethodConfig)


@dataclass(frozen=True)
class Experiment(Generic[D, M]):
    """Data, method and training together; `sbmcl train` makes a run folder of it."""

    recipe: str
    benchmark: str
    """As in the paper's tables: data set, slash, what is done with it."""
    label: str
    """The method's name in tables; `sbmcl` is the family's own entry of a benchmark."""
    data: D
    method: M
    training: Training = field(default_factory=Training)
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads back to an equal experiment."""
        plain = asdict(self)
        for part in ("data", "method"):
            plain[part] = {"type": type(getattr(self, part)).__name__, **plain[part]}
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        plain = dict(plain)
        for part, known in (("data", DataConfig.tags), ("method", MethodConfig.tags)):
            settings = dict(plain[part])
            tag = settings.pop("type", None)
            if tag not in known:
                raise ValueError(f"no {part} config is called {tag!r}; known are {', '.join(sorted(known))}")
            plain[part] = _from_plain(known[tag], settings)
        plain["training"] = _from_plain(Training, plain["training"])
        return _from_plain(cls, plain)


def _from_plain(cls: Any, plain: dict[str, Any]) -> Any:
    known = {f.name: f for f in fields(cls)}
    foreign = sorted(set(plain) - set(known))
    if foreign:
        raise ValueError(f"{cls.__name__} has no setting {', '.join(foreign)}; this file is of another version of sbmcl")
    values = dict(plain)
    for name, value in values.items():
        kind = known[name].type
        if is_dataclass(kind) and isinstance(value, dict):
            values[name] = _from_plain(kind, value)
        else:
            _check_type(f"{cls.__name__}.{name}", value, kind)
    return cls(**values)


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Plain JSON values only: numbers, strings, truth values and literals; objects are checked where they are built."""
    origin = get_origin(kind)
    if origin is Literal:
        fits = value in get_args(kind)
    elif kind is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif kind is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif isinstance(kind, type) and origin is None:
        fits = isinstance(value, kind)
    else:
        fits = isinstance(kind, TypeVar) or origin in (Union, types.UnionType)
    if not fits:
        raise ValueError(f"{name} is {value!r}, which does not fit {kind}")
