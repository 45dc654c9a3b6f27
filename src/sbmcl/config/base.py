"""What a configuration is: plain data that knows how to build what it describes.

To bring your own data or method, subclass one of these two, give it a `build` or a `source`, and put it into an `Experiment`.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sbmcl.data.episodes import EpisodeSource

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


class MethodConfig(ABC):
    """The hyperparameters of a method, and how to build it for a data set."""

    tags: ClassVar[dict[str, type["MethodConfig"]]] = {}
    meta_trained: ClassVar[bool] = True  # False: it starts every stream from nothing, and training.steps is 0
    default_episodes: ClassVar[int] = 512  # of an evaluation

    def __init_subclass__(cls) -> None:
        MethodConfig.tags[cls.__name__] = cls

    @abstractmethod
    def build(self, source: EpisodeSource) -> "Method[Any]":
        """A freshly initialised method for what this source draws (torch's global seed decides the weights)."""


def image_shape(source: EpisodeSource) -> tuple[int, int, int]:
    """Channels, height and width of the pictures that a classifier is built for."""
    if source.kind != "classes" or len(source.x_shape) != 3:
        raise ValueError(
            f"this method classifies pictures, but here x is {source.x_shape} and what is asked: {source.kind}"
        )
    channels, height, width = source.x_shape
    return channels, height, width
