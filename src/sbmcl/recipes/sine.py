"""Sine regression: 10 sine functions, 10 examples each."""

from sbmcl.config import ALPaCA, Sine, Training
from sbmcl.experiment import Experiment


def sine_alpaca() -> Experiment[Sine, ALPaCA]:
    """ALPaCA with the published encoder and training.

    Paper: 0.0011
    """
    return Experiment("sine-alpaca", "sine/regression", "sbmcl", Sine(), ALPaCA(), Training())


def sine_alpaca_quick() -> Experiment[Sine, ALPaCA]:
    """ALPaCA with the published encoder, trained for minutes.

    Paper: 0.0011
    """
    training = Training(steps=7_000, lr=2e-3, schedule="cosine", warmup=100)
    return Experiment("sine-alpaca-quick", "sine/regression", "sbmcl", Sine(), ALPaCA(), training)


def sine_alpaca_deep() -> Experiment[Sine, ALPaCA]:
    """ALPaCA with a deeper and wider encoder on the same belief.

    Paper: 0.0011
    """
    method = ALPaCA(hidden=1024, depth=4)
    training = Training(steps=6_000, lr=1e-3, schedule="cosine", warmup=200, clip=1.0, precision="bf16")
    return Experiment("sine-alpaca-deep", "sine/regression", "sbmcl", Sine(), method, training)


RECIPES = [sine_alpaca, sine_alpaca_quick, sine_alpaca_deep]
