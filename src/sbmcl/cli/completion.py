"""`sbmcl completion`: what a shell needs to complete verbs, recipes and options."""

import io
import re
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from typing import Annotated, Any, Literal

import tyro

from sbmcl.cli.common import STYLE, console
from sbmcl.cli.train import Options
from sbmcl.recipes import ALL

SCRIPT = """\
_sbmcl() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" first="${{COMP_WORDS[1]}}" second="" words=""
  if (( COMP_CWORD > 1 )); then second="${{COMP_WORDS[2]}}"; fi
  case "$COMP_CWORD $first $second" in
{cases}
  esac
  COMPREPLY=( $(compgen -W "$words" -- "$word") $(compgen -f -- "$word") )
}}
complete -o filenames -F _sbmcl sbmcl
"""
FOR_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def completion(shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional], /) -> None:
    """Print what makes a shell complete verbs, recipes and options.

    In the start-up file of the shell: eval "$(sbmcl completion bash)"

    Args:
        shell: bash or zsh.
    """
    from sbmcl.cli.app import VERBS

    script = (FOR_ZSH if shell == "zsh" else "") + SCRIPT.format(cases="\n".join(cases(VERBS)))
    console.print(script, end="", markup=False, emoji=False, soft_wrap=True)


def cases(verbs: dict[str, Any]) -> list[str]:
    """Branches of the script: a pattern of the word's place and the first two words, and what may stand there."""
    found = [case('"1 "*', verbs)]
    for name, verb in verbs.items():
        if isinstance(verb, dict):
            found.append(case(f'"2 {name} "*', verb))
            found += [case(f'*" {name} {inner}"', options(function)) for inner, function in verb.items()]
        elif name == "train":
            found += [case('"2 train "*', ALL), case('*" train "*', train_options())]
        else:
            found.append(case(f'*" {name} "*', [*options(verb), *(ALL if name == "recipes" else ())]))
    return found


def case(pattern: str, words: Iterable[str]) -> str:
    return f"    {pattern}) words={' '.join(words)!r} ;;"


def options(function: Callable[..., Any], **how: Any) -> list[str]:
    """Read off the help, which is where they are all written."""
    page = io.StringIO()
    with redirect_stdout(page), suppress(SystemExit):
        tyro.cli(function, args=["--help"], config=STYLE, **how)
    return list(dict.fromkeys(re.findall(r"(?<!\S)--[a-z][\w.-]*", page.getvalue())))


def train_options() -> list[str]:
    """Of all recipes together; those that differ in settings only have the same."""
    alike = {(type(e.data), type(e.method)): e for e in (recipe() for recipe in ALL.values())}
    found: dict[str, None] = {}
    for (data, method), experiment in alike.items():
        kind = Options[data, method]  # pyright: ignore[reportInvalidTypeArguments]
        found |= dict.fromkeys(options(kind, default=Options.of(experiment)))
    return list(found)
