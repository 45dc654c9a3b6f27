"""Continual learning that provably never forgets: meta-trained networks, exact Bayesian updates in between."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sbmcl.stream import StreamLearner

__all__ = ["StreamLearner"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The learner is imported when it is asked for: it brings torch, and `import sbmcl` stays quick."""
    if name == "StreamLearner":
        from sbmcl.stream import StreamLearner

        return StreamLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
