"""MS-Celeb-1M classification: 10 new people, 10 pictures each."""

from sbmcl.config import Celeb, GeMCL, Training
from sbmcl.experiment import Experiment


def celeb_gemcl() -> Experiment[Celeb, GeMCL]:
    """GeMCL with the published encoder and training, on all meta-train people.

    Paper: 0.231
    """
    data = Celeb(validation=0.0)
    return Experiment("celeb-gemcl", "celeb/classification", "sbmcl", data, GeMCL(), Training())


RECIPES = [celeb_gemcl]
