"""The commands `ottla completion SHELL`, which prints a shell's script, and `ottla complete WORDS`, which that script calls.

What can stand at a place comes from the command's own parameters: verbs, options, and the values that an option has. What is
a name of the cluster, and of what, is in `ottla/cli/completed_names.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Literal, get_args, get_origin

from cyclopts import App, Parameter
from cyclopts.argument import Argument, ArgumentCollection

from ottla.cli.application import run
from ottla.cli.command_table import COMMANDS
from ottla.cli.completed_names import AskedCompletion, names_for

SCRIPTS = {
    # bash divides words at ":" and "=" too, as in topic:NAME: the line is divided at blanks here, and what bash has in
    # front of its own last word is taken off. Names are quoted, because anyone who may create a group has named it.
    "bash": r"""_ottla() {
    local line="${COMP_LINE:0:COMP_POINT}" last found
    local -a words
    IFS=' ' read -ra words <<< "$line"
    [[ $line == *' ' ]] && words+=("")
    last="${words[${#words[@]}-1]}"
    last="${last%"${last##*[:=]}"}"
    COMPREPLY=()
    while IFS= read -r found; do
        COMPREPLY+=("$(printf '%q' "${found#"$last"}")")
    done < <(ottla complete -- "${words[@]:1}" 2>/dev/null)
    [[ ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace 2>/dev/null
}
complete -o default -F _ottla ottla""",
    "zsh": """#compdef ottla
_ottla() {
    local -a found
    found=("${(@f)$(ottla complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -a found
}
compdef _ottla ottla""",
    "fish": """complete -c ottla -f -a '(ottla complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'""",
}

app = App(name="completion", version_flags=[], help="Print the completion script of a shell.")
print_script = partial(run, app)


def main(arguments: Sequence[str]) -> int:
    """Run one of both commands: `complete` has the words of a command line behind a --."""
    if list(arguments[:1]) == ["--"]:
        for found in candidates(list(arguments[1:])):
            print(found)
        return 0
    return print_script(arguments)


@app.default
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Load the output at the start of the shell.")], /
) -> None:
    """Print the script: `source <(ottla completion bash)`, or `ottla completion fish | source`."""
    print(SCRIPTS[shell])


def candidates(words: list[str]) -> list[str]:
    """Return what can stand in place of the last word, which may be empty or a beginning."""
    *before, beginning = words or [""]
    possible = set(_possible(before, beginning))
    return sorted(found for found in possible if found.startswith(beginning) and found.isprintable())


def _possible(before: list[str], beginning: str) -> Iterable[str]:
    if not before:
        return COMMANDS
    command, rest = before[0], before[1:]
    app = getattr(import_module(COMMANDS[command].module), "app", None) if command in COMMANDS else None
    if not isinstance(app, App):
        return ()
    verb = None
    if app.default_command is None:
        verbs = {name: app[name] for name in app if not name.startswith("-")}
        if not rest:
            return verbs
        verb, rest = rest[0], rest[1:]
        if verb not in verbs:
            return ()
        app = verbs[verb]
    arguments = app.assemble_argument_collection()
    option, places = _divided(arguments, rest)
    if option is None and beginning.startswith("-"):
        return [name for found in arguments for name in found.names if name.startswith("-")]
    argument = option or _positional(arguments, len(places))
    if argument is None:
        return ()
    if choices := _choices(argument.hint):
        return choices
    return names_for(AskedCompletion(command, verb, option.names if option else (), places, beginning, rest))


def _divided(arguments: ArgumentCollection, words: Sequence[str]) -> tuple[Argument | None, list[str]]:
    """Return the option whose value comes next, if there is one, and the words that belong to no option."""
    options = {name: found for found in arguments for name in found.names if name.startswith("-")}
    places: list[str] = []
    awaited: Argument | None = None
    for word in words:
        if awaited is not None:
            awaited = None
        elif word in options:
            awaited = options[word] if options[word].token_count()[0] else None
        elif not word.startswith("-"):
            places.append(word)
    return awaited, places


def _positional(arguments: ArgumentCollection, count: int) -> Argument | None:
    """Return the parameter at this place: the last one if it takes as many words as there are."""
    at = sorted((found for found in arguments if found.index is not None), key=lambda found: found.index or 0)
    if count < len(at):
        return at[count]
    return at[-1] if at and at[-1].token_count()[1] else None


def _choices(hint: object) -> list[str]:
    """Return the words of a Literal, which may be one of several types."""
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    return [word for part in get_args(hint) for word in _choices(part)]
