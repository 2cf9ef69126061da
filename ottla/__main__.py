"""The command `ottla`, also as `python -m ottla`: a table of verbs, each in a module that is imported only when it is used.

A command module has `main(arguments) -> exit code`. Nothing else is loaded before it: `ottla --help` and a typing mistake must
be answered at once, and `ottla start` must not spend time on imports of other commands.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unhealthy (`cluster health`), 124 timed out, 130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module

from ottla import __version__
from ottla.cli.command_table import COMMANDS, HIDDEN
from ottla.cli.errors import INTERRUPTED, OK, OUTPUT, USAGE, CommandFailed
from ottla.cli.other_words import hint_of_command, leading_options
from ottla.client.failures import Failure, did_you_mean


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return the process's exit code."""
    leading, words = leading_options(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return OK if words else USAGE
    if words[0] in ("-V", "--version"):
        print(f"ottla {__version__}")
        return OK
    command = COMMANDS.get(words[0]) or HIDDEN.get(words[0])
    if command is None:
        kind = "option" if words[0].startswith("-") else "command"
        return _report(CommandFailed(f"there is no {kind} {words[0]!r}", _suggestion(words), USAGE))
    try:
        code: int = import_module(command.module).main([*leading, *words[1:]])
        OUTPUT.flush()
    except Failure as failure:
        return _report(failure)
    except KeyboardInterrupt:
        # An interrupt may end asyncio between the creation of a coroutine and its first step, and Python would warn about that.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        return INTERRUPTED
    # raised by commands that run until then, such as `consume -f`; a table ends with its own code
    except BrokenPipeError:
        OUTPUT.drop()
        return OK
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "Ottla: a Kafka-protocol cluster in Python.\n\n"
        f"Usage: ottla COMMAND ...\n\n{rows}\n\n"
        "`ottla COMMAND --help` says more. Most commands take -b HOST:PORT (or $OTTLA_BOOTSTRAP) and -o table|json|yaml."
    )


def _suggestion(words: Sequence[str]) -> str:
    meant = hint_of_command(words, COMMANDS, _verbs_of)
    return meant or did_you_mean(words[0], COMMANDS) or "`ottla --help` lists the commands"


def _verbs_of(command: str) -> Iterable[str]:
    app = getattr(import_module(COMMANDS[command].module), "app", None)
    return () if app is None else app.verbs


def _report(failure: Failure) -> int:
    # Imported late: only a command that fails needs it, and after a typing mistake the client library is not needed.
    from ottla.cli.output import printable

    if not isinstance(failure, CommandFailed):
        from ottla.cli.hints import as_command_failed

        failure = as_command_failed(failure)
    print(printable(failure.text(), keep="\n"), file=sys.stderr)
    return failure.exit_code


if __name__ == "__main__":
    sys.exit(main())
