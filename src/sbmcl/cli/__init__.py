"""The command line: verbs only, no logic. One function a verb, a file a group of them; `app` puts them together.

Nothing here imports torch before a verb that computes is called, so `--help` and listings answer at once.
"""

from sbmcl.cli.app import main

__all__ = ["main"]
