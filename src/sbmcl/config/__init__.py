"""Typed configuration: plain data, validated when it is made, that knows how to build what it describes.

One file mirrors one file of `methods` or `data`. Nothing here imports torch until something is built.
"""

from sbmcl.config.base import DataConfig, MethodConfig, Split
from sbmcl.config.conjugate import PN, ALPaCA, GeMCL
from sbmcl.config.data import DATA, Omniglot, Sine
from sbmcl.config.sgd import Offline, Online
from sbmcl.config.training import Training

__all__ = [
    "DATA",
    "PN",
    "ALPaCA",
    "DataConfig",
    "GeMCL",
    "MethodConfig",
    "Offline",
    "Omniglot",
    "Online",
    "Sine",
    "Split",
    "Training",
]
