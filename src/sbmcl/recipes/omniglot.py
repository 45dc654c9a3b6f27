"""Omniglot classification: 10 new characters, 10 drawings each."""

from sbmcl.config import GeMCL, Omniglot, Training
from sbmcl.experiment import Experiment


def omniglot_gemcl() -> Experiment[Omniglot, GeMCL]:
    """GeMCL with the published encoder.

    Paper: 0.008
    """
    training = Training(steps=5_000, episodes=4, lr=1e-3, schedule="cosine", warmup=100)
    return Experiment("omniglot-gemcl", "omniglot/classification", "sbmcl", Omniglot(), GeMCL(), training)


RECIPES = [omniglot_gemcl]
