"""Typed configuration: plain data, validated when it is made, that knows how to build what it describes.

One file mirrors one file of `methods` or `data`. Nothing here imports torch until something is built.
"""

from sbmcl.config.base import DataConfig, MethodConfig, Split
from sbmcl.config.conjugate import PN, ALPaCA, GeMCL
from sbmcl.config.data import CASIA, DATA, Celeb, Embeddings, Glyphs, Omniglot, Pictures, Sine
from sbmcl.config.latent import LatentCompletion, LatentDDPM, LatentRotation, LatentVAE
from sbmcl.config.oml import OML, OMLReptile
from sbmcl.config.sgd import Offline, Online
from sbmcl.config.training import Training
from sbmcl.config.transformer import Transformer

__all__ = [
    "CASIA",
    "DATA",
    "OML",
    "PN",
    "ALPaCA",
    "Celeb",
    "DataConfig",
    "Embeddings",
    "GeMCL",
    "Glyphs",
    "LatentCompletion",
    "LatentDDPM",
    "LatentRotation",
    "LatentVAE",
    "MethodConfig",
    "OMLReptile",
    "Offline",
    "Omniglot",
    "Online",
    "Pictures",
    "Sine",
    "Split",
    "Training",
    "Transformer",
]
