"""Typed configuration: plain data, validated when it is made, that knows how to build what it describes.

One file mirrors one file of `methods` or `data`. Nothing here imports torch until something is built.
"""

from sbmcl.config.base import DataConfig, MethodConfig, Split
from sbmcl.config.conjugate import PN, ALPaCA, GeMCL
from sbmcl.config.data import CASIA, DATA, Celeb, Embeddings, Glyphs, Omniglot, Pictures, Sine
from sbmcl.config.latent import Diffusion, LatentCompletion, LatentDDPM, LatentRotation, LatentVAE
from sbmcl.config.oml import OML, OMLDDPM, OMLVAE, OMLReptile, OMLReptileDDPM, OMLReptileVAE
from sbmcl.config.sgd import Offline, Online
from sbmcl.config.training import Training
from sbmcl.config.transformer import Transformer

__all__ = [
    "CASIA",
    "DATA",
    "OML",
    "OMLDDPM",
    "OMLVAE",
    "PN",
    "ALPaCA",
    "Celeb",
    "DataConfig",
    "Diffusion",
    "Embeddings",
    "GeMCL",
    "Glyphs",
    "LatentCompletion",
    "LatentDDPM",
    "LatentRotation",
    "LatentVAE",
    "MethodConfig",
    "OMLReptile",
    "OMLReptileDDPM",
    "OMLReptileVAE",
    "Offline",
    "Omniglot",
    "Online",
    "Pictures",
    "Sine",
    "Split",
    "Training",
    "Transformer",
]
