"""CASIA-HWDB: 10 new Chinese characters, 10 drawings each, to be told apart, completed, turned upright or drawn anew."""

from sbmcl.config import CASIA, GeMCL, Training
from sbmcl.experiment import Experiment
from sbmcl.recipes import generic


def casia_gemcl() -> Experiment[CASIA, GeMCL]:
    """GeMCL with the published encoder and training, on all meta-train characters.

    Paper: 0.002
    """
    data = CASIA(validation=0.0)
    return Experiment("casia-gemcl", "casia/classification", "sbmcl", data, GeMCL(), Training())


PAPER = {
    "classification": {
        "offline": "0.345",
        "online": "0.963",
        "oml": "0.015",
        "oml-reptile": "0.057",
        "tf": "0.004",
        "linear-tf": "0.006",
    },
    "completion": {
        "offline": "0.146",
        "online": "0.290",
        "oml": "0.105",
        "oml-reptile": "0.104",
        "tf": "0.097",
        "linear-tf": "0.101",
        "sbmcl": "0.100",
    },
    "rotation": {
        "offline": "0.544",
        "online": "1.079",
        "oml": "0.052",
        "oml-reptile": "0.050",
        "tf": "0.034",
        "linear-tf": "0.068",
        "sbmcl": "0.039",
    },
    "vae": {"offline": "0.664", "online": "0.862", "oml": "0.442", "oml-reptile": "0.454", "sbmcl": "0.428"},
    "ddpm": {"offline": "0.0451", "online": "0.1408", "oml": "0.0353", "oml-reptile": "0.0353", "sbmcl": "0.0345"},
}
"""Of 10 tasks, 10 shots."""

RECIPES = [
    casia_gemcl,
    *(recipe for benchmark, paper in PAPER.items() for recipe in generic.of(CASIA, benchmark, paper, paper=paper)),
]
