"""The commands `ottla completion SHELL`, which prints a shell's script, and `ottla complete WORDS`, which that script calls.

Verbs, options and fixed values are completed from the command's own parameters. `ottla/cli/completed_names.py` says which words
are names in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Literal

from ottla.cli.app import App, CommandOption, Parameter, options_of
from ottla.cli.application import run
from ottla.cli.command_table import COMMANDS
from ottla.cli.word_parser import HELP, is_option

SCRIPTS = {
    # bash divides words at ":" and "=" too, as in topic:NAME. So the script divides the line at blanks, and takes the part
    # before bash's own last word off again. Names are quoted, because a user who may create a group may give it any name.
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

app = App("completion", "Print the completion script of a shell.")
print_script = partial(run, app)


def main(arguments: Sequence[str]) -> int:
    """Run one of the two commands. `complete` gets the words of a command line after `--`."""
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
    """Return the words that can replace the last one, which may be empty or incomplete."""
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
    verb, function = None, app.default_command
    if function is None:
        if not rest:
            return app.verbs
        verb, rest = rest[0], rest[1:]
        if verb not in app.verbs:
            return ()
        function = app.function(verb)
    options = options_of(function)
    option, places = _divided(options, rest)
    if option is None and beginning.startswith("-"):
        return [*(name for found in options for name in found.names), *HELP]
    argument = option or _at_place(options, len(places))
    if argument is None:
        return ()
    if argument.choices:
        return argument.choices
    from ottla.cli.completed_names import (
        AskedCompletion,
        names_for,
    )  # imported late: only names in the cluster need its client

    return names_for(AskedCompletion(command, verb, option.names if option else (), places, beginning, rest))


def _divided(options: Sequence[CommandOption], words: Sequence[str]) -> tuple[CommandOption | None, list[str]]:
    """Return the option whose value comes next, if there is one, and the words that belong to no option."""
    named = {name: found for found in options for name in found.names}
    places: list[str] = []
    awaited: CommandOption | None = None
    for word in words:
        if awaited is not None:
            awaited = None
        elif word in named:
            awaited = None if named[word].is_flag else named[word]
        elif not is_option(word):
            places.append(word)
    return awaited, places


def _at_place(options: Sequence[CommandOption], count: int) -> CommandOption | None:
    """Return the argument at this place: the last one if it takes as many words as there are."""
    at = [found for found in options if not found.names]
    if count < len(at):
        return at[count]
    return at[-1] if at and at[-1].is_list else None
