"""Classification: log-scores of the classes known so far, judged by error, likelihood and calibration."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sbmcl.heads.base import Head


class ClassHead(Head):
    """A prediction is `b n c` unnormalised log-probabilities over labels 0..c-1."""

    metric = "error"
    pooled_only = frozenset({"confidence"})

    def loss(self, prediction: Float[Tensor, "b n c"], y: Int[Tensor, "b n"]) -> Float[Tensor, ""]:
        return F.cross_entropy(prediction.flatten(0, 1), y.flatten())

    def scores(self, prediction: Float[Tensor, "b n c"], y: Int[Tensor, "b n"]) -> dict[str, Tensor]:
        log_prob = prediction.log_softmax(-1)
        return {
            "error": (log_prob.argmax(-1) != y).to(log_prob.dtype),
            "nll": -log_prob.gather(-1, y.unsqueeze(-1)).squeeze(-1),
            "confidence": log_prob.amax(-1).exp(),
        }

    def pooled(self, scores: dict[str, Tensor]) -> dict[str, float]:
        return {"ece": expected_calibration_error(scores["confidence"], 1 - scores["error"])}


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """sum_bins (share of queries) |accuracy - mean confidence|, equal-width bins (Guo et al. 2017)."""
    confidence, correct = confidence.flatten().double(), correct.flatten().double()
    which = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64, device=confidence.device)
    gap.scatter_add_(0, which, correct - confidence)
    return (gap.abs().sum() / confidence.numel()).item()


def auroc(known: Tensor, novel: Tensor) -> float:
    """The chance that a novel query scores higher than a known one, ties counted half (the Mann-Whitney statistic)."""
    known = known.flatten().sort().values
    novel = novel.flatten().contiguous()
    below = torch.searchsorted(known, novel, right=False).double()
    up_to = torch.searchsorted(known, novel, right=True).double()
    return ((below + up_to) / 2).mean().item() / known.numel()
