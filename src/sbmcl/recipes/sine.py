"""Sine regression: 10 sine functions, 10 examples each."""

from sbmcl.config import ALPaCA, Sine, Training
from sbmcl.experiment import Experiment


def sine_alpaca() -> Experiment[Sine, ALPaCA]:
    """ALPaCA with the published encoder.

    Paper: 0.0012
    """
    training = Training(steps=7_000, lr=2e-3, schedule="cosine", warmup=100)
    return Experiment("sine-alpaca", "sine/regression", "sbmcl", Sine(), ALPaCA(), training)


RECIPES = [sine_alpaca]
