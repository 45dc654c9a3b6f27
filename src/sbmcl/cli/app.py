"""The program: finds the verb, lets it parse its own options, and turns what goes wrong into one line and an exit code.

To add a verb, write a function with typed parameters (its docstring is its help) in the file of its group and name it in
`VERBS`; a dictionary of verbs is a group such as `sbmcl data`. Import what is heavy inside the function.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import tyro
from rich.table import Table

from sbmcl import __version__
from sbmcl.cli.common import STYLE, Exit, Failure, aside, console, nearest
from sbmcl.cli.completion import completion
from sbmcl.cli.data import info, prepare, verify
from sbmcl.cli.demo import demo
from sbmcl.cli.evaluate import evaluate
from sbmcl.cli.learner import forget, inspect, learn, merge, predict
from sbmcl.cli.recipes import recipes
from sbmcl.cli.report import report
from sbmcl.cli.reproduce import reproduce
from sbmcl.cli.show import show
from sbmcl.cli.train import train

Verb = Callable[..., None]
VERBS: dict[str, Verb | dict[str, Verb]] = {
    "demo": demo,
    "recipes": recipes,
    "train": train,
    "evaluate": evaluate,
    "show": show,
    "report": report,
    "reproduce": reproduce,
    "learn": learn,
    "predict": predict,
    "merge": merge,
    "forget": forget,
    "inspect": inspect,
    "data": {"prepare": prepare, "info": info, "verify": verify},
    "completion": completion,
}

INTRODUCTION = """\
[bold]sbmcl[/] learns from streams without forgetting. Networks are meta-trained once and
then frozen; what a stream teaches goes into exact Bayesian beliefs: the order of
examples does not matter, and memory does not grow.

[bold]First steps[/]
  [cyan]sbmcl demo[/]                       four minutes, and a page with what happened
  [cyan]sbmcl recipes sine[/]               what can be trained, with the paper's scores
  [cyan]sbmcl train sine-alpaca-quick[/]    train one; it says how to evaluate it

[bold]Verbs[/]"""
ENDING = """\

[bold]Options of a verb[/]  [cyan]sbmcl VERB --help[/]        [bold]Version[/]  [cyan]sbmcl --version[/]

[bold]Exit codes[/]  0 fine, 1 failed, 2 not understood, 3 training diverged,
            130 interrupted (go on with --resume)

[bold]Environment[/] SBMCL_DATA         folder of downloaded archives
            SBMCL_CACHE        folder of prepared data sets
            SBMCL_TRACEBACK=1  show where in the code an error comes from"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; `sbmcl` on the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        run("sbmcl", VERBS, arguments)
    except SystemExit as stop:  # tyro has said why
        return stop.code if isinstance(stop.code, int) else Exit.FINE
    except KeyboardInterrupt:
        return failed("interrupted", Exit.INTERRUPTED)
    except Failure as failure:
        return failed(str(failure), failure.code)
    except (ValueError, OSError) as error:
        return failed(str(error), Exit.FAILED)
    return Exit.FINE


def failed(message: str, code: Exit) -> int:
    if os.environ.get("SBMCL_TRACEBACK"):
        raise
    aside.print("[bold red]error[/] ", end="")
    aside.print(message, markup=False, soft_wrap=True)
    return code


def run(program: str, verbs: dict[str, Any], arguments: list[str]) -> None:
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h", "help"):
        help_page(program, verbs)
    elif name in ("--version", "-V"):
        console.print(f"sbmcl {__version__}")
    elif name not in verbs:
        raise Failure(f"{program} has no verb {name!r}{nearest(name, verbs)} '{program} --help' lists all.", Exit.USAGE)
    elif isinstance(verbs[name], dict):
        run(f"{program} {name}", verbs[name], arguments[1:])
    elif verbs[name] is train:  # its options depend on its recipe
        train(arguments[1:])
    else:
        tyro.cli(verbs[name], prog=f"{program} {name}", args=arguments[1:], config=STYLE)


def help_page(program: str, verbs: dict[str, Any]) -> None:
    console.print(INTRODUCTION if verbs is VERBS else f"[bold]Verbs of {program}[/]")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for name, verb in verbs.items():
        parts = {f"{name} {inner}": of for inner, of in verb.items()} if isinstance(verb, dict) else {name: verb}
        for words, function in parts.items():
            table.add_row(f"[cyan]{words}[/]", (function.__doc__ or "").splitlines()[0])
    console.print(table)
    if verbs is VERBS:
        console.print(ENDING)
