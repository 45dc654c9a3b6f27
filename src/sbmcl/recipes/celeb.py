"""MS-Celeb-1M: 10 new people, 10 pictures each, to be told apart, completed or drawn anew."""

from sbmcl.config import Celeb, GeMCL, Training
from sbmcl.experiment import Experiment
from sbmcl.recipes import generic


def celeb_gemcl() -> Experiment[Celeb, GeMCL]:
    """GeMCL with the published encoder and training, on all meta-train people.

    Paper: 0.231
    """
    data = Celeb(validation=0.0)
    return Experiment("celeb-gemcl", "celeb/classification", "sbmcl", data, GeMCL(), Training())


PAPER = {
    "classification": {
        "offline": "0.625",
        "online": "0.863",
        "oml": "0.331",
        "oml-reptile": "0.660",
        "tf": "0.228",
        "linear-tf": "0.229",
    },
    "completion": {
        "offline": "0.160",
        "online": "0.284",
        "oml": "0.099",
        "oml-reptile": "0.105",
        "tf": "0.094",
        "linear-tf": "0.097",
        "sbmcl": "0.096",
    },
    "ddpm": {"offline": "0.0438", "online": "0.2124", "oml": "0.0308", "oml-reptile": "0.0307", "sbmcl": "0.0302"},
}
"""Of 10 tasks, 10 shots."""

RECIPES = [
    celeb_gemcl,
    *(recipe for benchmark, paper in PAPER.items() for recipe in generic.of(Celeb, benchmark, paper, paper=paper)),
]
