"""Pictures of your own: the store `pictures`, or --data.store NAME."""

from sbmcl.config import GeMCL, Pictures, Training
from sbmcl.experiment import Experiment


def pictures_gemcl() -> Experiment[Pictures, GeMCL]:
    """GeMCL with the published encoder, trained for minutes."""
    training = Training(steps=5_000, episodes=4, lr=1e-3, schedule="cosine", warmup=100)
    return Experiment("pictures-gemcl", "pictures/classification", "sbmcl", Pictures(), GeMCL(), training)


RECIPES = [pictures_gemcl]
