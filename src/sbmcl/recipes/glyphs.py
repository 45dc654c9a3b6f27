"""Endless drawn characters: meta-train without any data, then test on glyphs never drawn before or on real alphabets."""

from sbmcl.config import GeMCL, Glyphs, Training
from sbmcl.experiment import Experiment


def glyphs_gemcl() -> Experiment[Glyphs, GeMCL]:
    """GeMCL with the published encoder and training, on drawn characters."""
    return Experiment("glyphs-gemcl", "glyphs/classification", "sbmcl", Glyphs(), GeMCL(), Training())


def glyphs_gemcl_quick() -> Experiment[Glyphs, GeMCL]:
    """GeMCL with the published encoder, trained for minutes on drawn characters."""
    training = Training(steps=5_000, episodes=4, lr=1e-3, schedule="cosine", warmup=100)
    return Experiment("glyphs-gemcl-quick", "glyphs/classification", "sbmcl", Glyphs(), GeMCL(), training)


RECIPES = [glyphs_gemcl, glyphs_gemcl_quick]
