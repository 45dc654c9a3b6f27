"""What a learner knows before its stream: a prior for numbers of about unit size, one from a run, or one from a file."""

from typing import Any, Literal

import torch
from torch import Tensor

from sbmcl.beliefs import Belief, IsotropicGaussian, MatrixNormal, NormalGamma
from sbmcl.methods.conjugate import ALPaCA, ClassConjugate
from sbmcl.state import map_tensors

BeliefName = Literal["isotropic", "normal-gamma", "matrix-normal"]
NAMES: dict[str, BeliefName] = {
    IsotropicGaussian.__name__: "isotropic",
    NormalGamma.__name__: "normal-gamma",
    MatrixNormal.__name__: "matrix-normal",
}


def unit_prior(name: str, dim: int, targets: int = 1) -> Belief:
    """Flat about the means of classes, of variance 1 within a class; weights of variance 1, noise of deviation 0.1."""
    one, wide = torch.ones(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, dim, dtype=torch.float64)
    match name:
        case "isotropic":
            return IsotropicGaussian.of(0 * wide, 0 * one, one.squeeze())
        case "normal-gamma":
            return NormalGamma.of(0 * wide, 0 * one, one, wide)
        case "matrix-normal":
            eye, noise = torch.eye(dim, dtype=torch.float64), 0.1 * torch.eye(targets, dtype=torch.float64)
            return MatrixNormal.of(eye.new_zeros(1, dim, targets), eye.unsqueeze(0), noise)
    raise ValueError(f"no belief is called {name!r}; there are {', '.join(NAMES.values())}")


@torch.no_grad()
def prior_of(method: ClassConjugate[Any] | ALPaCA) -> tuple[Belief, float]:
    """What a meta-trained method knows before a stream, and by how much it multiplies log-scores."""
    log_scale = getattr(method, "log_scale", None)
    prior = map_tensors(lambda t: t.cpu().contiguous(), method.init(1))
    return prior, 1.0 if log_scale is None else float(log_scale.double().exp())


def dimensions(prior: Belief) -> tuple[int, int]:
    """Numbers of a code, and of a target (none, for classes)."""
    shift = prior.naturals["shift"]
    return (shift.shape[1], shift.shape[2]) if isinstance(prior, MatrixNormal) else (shift.shape[2], 0)


def prior_from(kind: str, fields: dict[str, Tensor]) -> Belief:
    """What a file says, unless it cannot be."""
    shift = fields["shift"]
    right = unit_prior(NAMES[kind], shift.shape[-2] if kind == "MatrixNormal" else shift.shape[-1], shift.shape[-1])
    wanted, found = ({n: (t.shape, t.dtype) for n, t in of.items()} for of in (vars(right), fields))
    if wanted != found or not all(bool(torch.isfinite(t).all()) for t in fields.values()):
        raise ValueError("its prior is not such as a learner has")
    return type(right)(**fields)
