"""Beliefs: everything that learns from a stream does it here, by exact Bayesian updates of natural parameters."""

from sbmcl.beliefs.base import Belief
from sbmcl.beliefs.diagonal_gaussian import DiagonalGaussian
from sbmcl.beliefs.isotropic_gaussian import IsotropicGaussian
from sbmcl.beliefs.matrix_normal import LinearPredictive, MatrixNormal, predict_from
from sbmcl.beliefs.normal_gamma import NormalGamma

__all__ = [
    "Belief",
    "DiagonalGaussian",
    "IsotropicGaussian",
    "LinearPredictive",
    "MatrixNormal",
    "NormalGamma",
    "predict_from",
]
