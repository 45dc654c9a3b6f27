"""Vectors of your own, such as another network's embeddings: the store `embeddings`, or --data.store NAME."""

from sbmcl.config import PN, ALPaCA, Embeddings, GeMCL, Training
from sbmcl.experiment import Experiment

TRAINING = Training(steps=2_000, lr=1e-3, schedule="cosine", warmup=100)


def embeddings_gemcl() -> Experiment[Embeddings, GeMCL]:
    """GeMCL behind a small network; --method.depth 0 takes the vectors as they are."""
    method = GeMCL(width=128)
    return Experiment("embeddings-gemcl", "embeddings/classification", "sbmcl", Embeddings(), method, TRAINING)


def embeddings_pn() -> Experiment[Embeddings, PN]:
    """Prototypes behind a small network; --method.depth 0 takes the vectors as they are."""
    method = PN(width=128)
    return Experiment("embeddings-pn", "embeddings/classification", "pn", Embeddings(), method, TRAINING)


def embeddings_alpaca() -> Experiment[Embeddings, ALPaCA]:
    """Bayesian regression of the last number of each vector on the others; every class is a function of its own."""
    data, method = Embeddings(targets=1), ALPaCA(width=128, hidden=128, loss="nll")
    return Experiment("embeddings-alpaca", "embeddings/regression", "sbmcl", data, method, TRAINING)


RECIPES = [embeddings_gemcl, embeddings_pn, embeddings_alpaca]
