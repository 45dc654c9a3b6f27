"""Heads: what is predicted, the loss it is trained on and the scores it is judged by."""

from sbmcl.heads.angle import AngleHead
from sbmcl.heads.base import Head
from sbmcl.heads.classes import ClassHead
from sbmcl.heads.diffusion import DiffusionHead
from sbmcl.heads.vae import VAEHead
from sbmcl.heads.vector import VectorHead

__all__ = ["AngleHead", "ClassHead", "DiffusionHead", "Head", "VAEHead", "VectorHead"]
