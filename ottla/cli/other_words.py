"""The words of a command line in another order or of another tool: options before the command, kcat's options, `describe topic`.

Options before the command are moved behind it. Everything else is a mistake, and its hint has the words that were probably
meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

#: Options of many commands that take a value. They may also stand before the command, as in `ottla -b HOST:PORT topic list`.
BEFORE_COMMAND = ("--bootstrap", "-b", "--config", "--context", "--timeout", "--output", "-o")

#: Words that are no command of `ottla`, and the commands that were probably meant.
MEANT = {
    "version": "`ottla --version`",
    "reassign": "`ottla move plan TOPIC --among 1,2,3`, then `ottla move run`",
    "rebalance": "`ottla move plan --even`, then `ottla move run --even`",
    "drain": "`ottla move run --drain BROKER`",
    "health": "`ottla cluster health`",
    "status": "`ottla cluster health`",
    "metadata": "`ottla cluster info` and `ottla topic list`",
    "lag": "`ottla group lag GROUP`",
    "offsets": "`ottla topic describe TOPIC`",
    "server": "`ottla start`",
    "schema": "`ottla registry` serves schemas",
}
#: Verbs of other tools.
SAME_VERB = {"get": "list", "ls": "list", "show": "list", "rm": "delete", "new": "create", "add": "create"}

#: The commands for kcat's modes.
KCAT_MODES = {
    "-C": "`ottla consume {topic}`",
    "-P": "`ottla produce {topic}`",
    "-G": "`ottla consume {topic} -g GROUP`",
    "-L": "`ottla cluster info` and `ottla topic list`",
    "-Q": "`ottla topic describe {topic}`",
}
_BOTH = {
    "-t": "the word behind the command: `ottla {command} TOPIC`",
    "-X": "a line of a file: --config FILE",
    "-r": "--registry URL",
}
#: Options of kcat that have other names here, by command. Some of them exist here too; then the value shows whether kcat's is
#: meant.
KCAT_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "consume": _BOTH
    | {
        "-c": "-n COUNT",
        "-e": "not needed: the command ends at the end of the topic unless it has -f",
        "-o": "--from OFFSET (earliest, latest, a number, -N or a time)",
        "-f": "-F FORMAT",
        "-J": "-o json",
        "-K": "-F '%k:%v\\n'",
        "-D": "-F '%v\\n'",
    },
    "produce": _BOTH | {"-K": "--key-separator TEXT", "-l": "-f FILE", "-c": "the end of its input"},
}
_BY_VALUE: Mapping[str, Callable[[str], bool]] = {
    "-o": lambda value: value not in ("text", "json", "value", "hex"),
    "-f": lambda value: "%" in value,
}


def leading_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options at the beginning that are in BEFORE_COMMAND, and the words after them."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in BEFORE_COMMAND:
        at += 1 if "=" in words[at] else 2
    return list(words[:at]), list(words[at:])


def hint_of_command(
    words: Sequence[str], commands: Iterable[str], verbs_of: Callable[[str], Iterable[str]]
) -> str | None:
    """Return the command that was probably meant by words whose first is no command; None if nothing is known.

    `verbs_of` gives the verbs of a command.
    """
    first, rest = words[0], words[1:]
    if first.startswith("-"):
        topic = next((after for word, after in zip(words, rest, strict=False) if word == "-t"), "TOPIC")
        mode = next((word for word in words if word in KCAT_MODES), None)
        return None if mode is None else f"kcat's {mode} is {KCAT_MODES[mode].format(topic=topic)}"
    if rest and (noun := next((name for name in (rest[0], rest[0].removesuffix("s")) if name in commands), None)):
        found = [verb for verb in (first, SAME_VERB.get(first)) if verb is not None and verb in verbs_of(noun)]
        if found:
            return f"`ottla {' '.join([noun, found[0], *rest[1:]])}`"
    if first.startswith("kafka-"):
        return (
            f"`ottla shims DIRECTORY` writes {first} and Kafka's other tools; `ottla --help` lists Ottla's own commands"
        )
    return MEANT.get(first)


def hint_of_option(command: str, words: Sequence[str]) -> str | None:
    """Return the option that was probably meant by one of kcat's; None if there is none of these."""
    options = KCAT_OPTIONS.get(command, {})
    for word, value in zip(words, [*words, ""][1:], strict=True):
        if word in KCAT_MODES and options:
            return f"kcat's {word} is {KCAT_MODES[word].format(topic='TOPIC')}"
        if word in options and _BY_VALUE.get(word, bool)(value or "-"):
            return f"kcat's {word} is {options[word].format(command=command)}"
    return None
