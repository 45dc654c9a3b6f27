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
        check_share("validation", self.validation)

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


@dataclass(frozen=True)
class CASIA(PictureData):
    """CASIA-HWDB: Chinese characters, of which 1,000 are for meta-test."""

    name: ClassVar[str] = "casia"

    validation: float = 0.02
    """Share of meta-train characters held out for choosing between models; 0 trains on all of them, as published."""

    def __post_init__(self) -> None:
        check_share("validation", self.validation)

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource | None:
        from sbmcl.data import casia
        from sbmcl.data.images import ImageEpisodes
        from sbmcl.data.tasks import task_named

        store = casia.load()
        classes = classes_of(split, store.class_names, *casia.split(store.class_names), self.validation)
        return ImageEpisodes(store, classes, task=task_named(self.task), device=device) if len(classes) else None


@dataclass(frozen=True)
class Celeb(PictureData):
    """MS-Celeb-1M: faces of people with at least 20 pictures, of whom 1,000 are for meta-test."""

    name: ClassVar[str] = "celeb"

    validation: float = 0.02
    """Share of meta-train people held out for choosing between models; 0 trains on all of them, as published."""

    def __post_init__(self) -> None:
        check_share("validation", self.validation)

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource | None:
        from sbmcl.data import celeb
        from sbmcl.data.images import ImageEpisodes
        from sbmcl.data.tasks import task_named

        store, task = celeb.load(), task_named(self.task)
        classes = classes_of(split, store.class_names, *celeb.split(store.class_names), self.validation)
        return ImageEpisodes(store, classes, task=task, query_cap=10, device=device) if len(classes) else None


@dataclass(frozen=True)
class Pictures(PictureData):
    """Pictures of your own, prepared by `sbmcl data prepare`."""

    name: ClassVar[str] = "pictures"

    store: str = "pictures"
    """Name of a prepared store, or the path of one."""
    test: float = 0.25
    """Share of the classes for meta-test."""
    queries: int = 10
    """At most so many queries of each task in an evaluation."""
    validation: float = 0.2
    """Share of the other classes held out for choosing between models; 0 trains on all of them."""
    orientations: Literal[1, 8] = 1
    """Classes made of each meta-train class by quarter turns and mirroring."""
    degrees: float = 0.0
    """Meta-train pictures are turned by up to so many degrees."""
    shear: float = 0.0
    """Meta-train pictures are sheared by up to so many degrees."""
    scale: float = 0.0
    """Each axis of meta-train pictures is scaled by up to 1 +- this."""
    shift: float = 0.0
    """Meta-train pictures are moved by up to this share of their width."""

    def __post_init__(self) -> None:
        check_share("test", self.test)
        check_share("validation", self.validation)

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource | None:
        from sbmcl.data.images import ImageEpisodes, Jitter, split_classes
        from sbmcl.data.store import Store, named_store
        from sbmcl.data.tasks import task_named

        store, task = Store.load(named_store(self.store)), task_named(self.task)
        kept, held = (part.tolist() for part in split_classes(store.class_names, self.test, seed=1))
        classes = classes_of(split, store.class_names, kept, held, self.validation)
        if not len(classes):
            return None
        if split != "train":
            return ImageEpisodes(store, classes, task=task, query_cap=self.queries, device=device)
        jitter = Jitter(self.degrees, self.shear, self.scale, self.shift)
        return ImageEpisodes(store, classes, task=task, orientations=self.orientations, jitter=jitter, device=device)


@dataclass(frozen=True)
class Embeddings(DataConfig):
    """Vectors of your own, such as another network's embeddings, prepared by `sbmcl data prepare`."""

    name: ClassVar[str] = "embeddings"

    store: str = "embeddings"
    """Name of a prepared store, or the path of one."""
    targets: int = 0
    """How many numbers at the end of a vector are to be predicted from the others; 0 asks for the class instead."""
    standardise: bool = True
    """Shift and scale every number by its mean and deviation in the meta-train classes."""
    test: float = 0.25
    """Share of the classes for meta-test."""
    queries: int = 10
    """At most so many queries of each task in an evaluation."""
    validation: float = 0.2
    """Share of the other classes held out for choosing between models; 0 trains on all of them."""

    def __post_init__(self) -> None:
        check_share("test", self.test)
        check_share("validation", self.validation)
        if self.targets < 0:
            raise ValueError(f"there cannot be {self.targets} targets")

    def source(self, split: Split, device: "torch.device | str" = "cpu") -> EpisodeSource | None:
        import torch

        from sbmcl.data.images import split_classes
        from sbmcl.data.store import Store, named_store
        from sbmcl.data.tasks import Classification
        from sbmcl.data.vectors import Regression, VectorEpisodes, moments

        store = Store.load(named_store(self.store))
        kept, held = (part.tolist() for part in split_classes(store.class_names, self.test, seed=1))
        classes = classes_of(split, store.class_names, kept, held, self.validation)
        if not len(classes):
            return None
        task = Regression(self.targets) if self.targets else Classification()
        mean, deviation = moments(store, torch.tensor(kept)) if self.standardise else (None, None)
        cap = self.queries
        return VectorEpisodes(store, classes, task=task, mean=mean, deviation=deviation, query_cap=cap, device=device)


def check_share(name: str, share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError(f"{name} is a share of the classes, 0 <= share < 1, but got {share}")


def classes_of(
    split: Split, names: tuple[str, ...], train: list[int], test: list[int], validation: float
) -> "torch.Tensor":
    """The class numbers of a split; validation classes are a share of the meta-train ones, chosen by name."""
    import torch

    from sbmcl.data.images import split_classes

    if split == "test":
        return torch.tensor(test, dtype=torch.long)
    every = torch.tensor(train, dtype=torch.long)
    kept, held = split_classes(tuple(names[number] for number in train), validation, seed=0)
    return every[kept if split == "train" else held]


DATA: dict[str, type[DataConfig]] = {
    data.name: data for data in (Sine, Glyphs, Omniglot, CASIA, Celeb, Pictures, Embeddings)
}
