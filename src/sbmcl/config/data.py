"""The data sets an experiment can name, and how their classes are split."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from sbmcl.config.base import DataConfig, Split
from sbmcl.data.episodes import EpisodeSource, TaskName
from sbmcl.data.hand import Hand

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Sine(DataConfig):
    """Sine regression; every split is fresh draws of the same distribution."""

    name: ClassVar[str] = "sine"

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        from sbmcl.data.sine import SineSource

        return SineSource()


@dataclass(frozen=True)
class PictureData(DataConfig):
    """Classes of pictures, about which several things can be asked."""

    task: TaskName = "classification"
    """What is asked about the pictures."""


@dataclass(frozen=True)
class Glyphs(PictureData):
    """Endless drawn characters: every class a random program of pen strokes, every example drawn by a noisy hand."""

    name: ClassVar[str] = "glyphs"

    classes: int = 1 << 40
    """Meta-train characters; fewer shows what a lack of classes costs."""
    hand: Hand = field(default_factory=Hand)
    """How unlike two drawings of one character are."""

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource:
        from sbmcl.data.glyphs import EVERY, GlyphSource
        from sbmcl.data.tasks import task_named

        family = ("train", "validation", "test").index(split)
        classes = self.classes if split == "train" else EVERY
        return GlyphSource(family=family, classes=classes, hand=self.hand, task=task_named(self.task))


@dataclass(frozen=True)
class Omniglot(PictureData):
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
        from sbmcl.data.images import ImageEpisodes, Jitter, split_classes
        from sbmcl.data.tasks import task_named

        task = task_named(self.task)
        if split == "test":
            return ImageEpisodes(omniglot.load("evaluation"), task=task, query_cap=10, device=device)
        if split == "validation" and self.validation == 0:
            return None
        store = omniglot.load("background")
        train, held_out = split_classes(store.class_names, self.validation, seed=0)
        if split == "validation":
            return ImageEpisodes(store, held_out, task=task, query_cap=10, device=device)
        jitter = Jitter(self.degrees, self.shear, self.scale, self.shift)
        return ImageEpisodes(
            store, train, task=task, orientations=self.orientations, jitter=jitter, query_cap=10, device=device
        )


DATA: dict[str, type[DataConfig]] = {data.name: data for data in (Sine, Glyphs, Omniglot)}
