"""CASIA-HWDB classification: 10 new Chinese characters, 10 drawings each."""

from sbmcl.config import CASIA, GeMCL, Training
from sbmcl.experiment import Experiment


def casia_gemcl() -> Experiment[CASIA, GeMCL]:
    """GeMCL with the published encoder and training, on all meta-train characters.

    Paper: 0.002
    """
    data = CASIA(validation=0.0)
    return Experiment("casia-gemcl", "casia/classification", "sbmcl", data, GeMCL(), Training())


RECIPES = [casia_gemcl]
