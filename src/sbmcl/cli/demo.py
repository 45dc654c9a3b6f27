"""`sbmcl demo`: what a newcomer runs first; `make run` is this."""

from pathlib import Path

from sbmcl.cli.common import outcomes, use_threads


def demo(run: Path = Path("runs/demo"), threads: int | None = None) -> None:
    """Train for three minutes, watch it learn two streams, write a page about them.

    Args:
        run: The folder for the networks and the page; a second time, the trained networks are used again.
        threads: Cores to use; all unless limited.
    """
    from sbmcl.demo import show

    use_threads(threads)
    with outcomes():
        show(run)
