"""Continual learning that provably never forgets: meta-trained networks, exact Bayesian updates in between."""

__version__ = "0.1.0"
