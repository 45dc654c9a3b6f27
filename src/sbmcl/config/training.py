"""Hyperparameters of the outer loop, the same for every method."""

from dataclasses import dataclass, field
from typing import Literal

from sbmcl.data.episodes import EpisodeShape


@dataclass(frozen=True)
class Training:
    """The outer loop."""

    steps: int = 50_000
    """Meta-training steps; 0 for a method that is not meta-trained."""
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
    """Of the networks; beliefs are always float32. `auto` is bf16 where that pays: for convolutions and transformers."""
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
        for name in ("episodes", "halve_every", "log_every", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"training.{name} counts from 1, but got {getattr(self, name)}")
        for name in ("steps", "warmup", "weight_decay", "clip"):
            if getattr(self, name) < 0:
                raise ValueError(f"training.{name} cannot be negative, but got {getattr(self, name)}")
        if self.lr <= 0:
            raise ValueError(f"training.lr must be positive, but got {self.lr}")
        if not 0 <= self.ema < 1:
            raise ValueError(f"training.ema is a decay, 0 <= decay < 1, but got {self.ema}")
