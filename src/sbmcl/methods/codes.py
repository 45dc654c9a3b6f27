"""Label codes: which output of a fixed vocabulary stands for which label, drawn anew for every stream.

Methods whose outputs are a fixed list (OML, transformers) would otherwise meet label 3 always as output 3, and outputs
that no stream of meta-training reached would never be trained. It knows labels and outputs, no method.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.episode import Examples


@dataclass(frozen=True)
class Codebook:
    """A vocabulary of `size` codes. What an episode remembers is a permutation of it: label `c` is written `codes[c]`.

    Labels are 0..size-1 in any order. The codes that no label uses yet are the rest of the permutation, so nothing has
    to know the number of classes.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"a vocabulary needs at least 2 codes, but got {self.size}")

    def draw(self, batch: int, *, rng: torch.Generator | None, device: torch.device) -> Int[Tensor, "b v"]:
        """Distinct codes for all labels of each episode; without `rng`, label c is code c."""
        if rng is None:
            return torch.arange(self.size, device=device).repeat(batch, 1)
        return torch.rand(batch, self.size, generator=rng, device=device).argsort(dim=-1)

    def encode(self, codes: Int[Tensor, "b v"], label: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        """The codes of labels."""
        # Only where looking costs nothing: on a GPU it would make every step wait, and there the gather itself fails
        if label.is_cpu and label.numel():
            self._check(int(label.min()), int(label.max()))
        return codes.gather(1, label)

    def by_label(self, codes: Int[Tensor, "b v"], scores: Float[Tensor, "b n v"]) -> Float[Tensor, "b n v"]:
        """Scores of codes, put in the order of the labels.

        The columns after those of the classes met so far are the codes nobody uses. They stay, so that a likelihood is
        one over the whole vocabulary and picking an unused code is an error, as published (deviation D22).
        """
        return scores.gather(-1, codes.unsqueeze(1).expand_as(scores))

    def _check(self, lowest: int, highest: int) -> None:
        if lowest < 0:
            raise ValueError(f"labels count from 0, but got {lowest}; map your labels to 0..c-1 first")
        if highest >= self.size:
            raise ValueError(
                f"label {highest} needs a vocabulary of {highest + 1} codes, but this model was trained with "
                f"{self.size}; learn from fewer classes, or train with a larger vocabulary"
            )


def labels(examples: Examples) -> Int[Tensor, "b n"]:
    """The targets of examples that are to be classified."""
    y = examples.y
    if y is None or y.is_floating_point() or y.dim() != 2:
        found = "no labels" if y is None else f"{y.dtype} targets of shape {tuple(y.shape)}"
        raise ValueError(f"a classifier learns from integer labels of shape (batch, examples), but got {found}")
    return y
