"""Names of subjects and their contexts: `orders-value` is in the default context, `:.staging:orders-value` in `.staging`."""

from __future__ import annotations

DEFAULT_CONTEXT = "."
#: A prefix for the subjects of all contexts.
ALL_CONTEXTS = ":*:"
#: The name of the global configuration, and names that no subject may have.
GLOBAL = ""
RESERVED = frozenset(("__GLOBAL", "__EMPTY"))


def split(subject: str) -> tuple[str, str]:
    """Return the context and the name in it."""
    if subject.startswith(":."):
        context, colon, name = subject[1:].partition(":")
        if colon:
            return context, name
        return context, ""
    return DEFAULT_CONTEXT, subject


def join(context: str, name: str) -> str:
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def normal(subject: str) -> str:
    """Return the shortest name of a subject: without the context if it is the default one."""
    return join(*split(subject))


def context_of(subject: str) -> str:
    return split(subject)[0]


def in_same_context(subject: str, parent: str) -> str:
    """Return the subject that a reference in `parent` means. If it has no context, it is in the context of its parent."""
    return subject if subject.startswith(":.") else join(context_of(parent), subject)


def scopes(subject: str) -> tuple[str, ...]:
    """Return the places where the configuration of a subject is looked up: the subject, its context, everywhere."""
    context = context_of(subject)
    around = () if context == DEFAULT_CONTEXT else (f":{context}:",)
    return tuple(dict.fromkeys((subject, *around, GLOBAL)))


def is_valid(subject: str) -> bool:
    """Return whether a schema can be registered under this subject."""
    name = split(subject)[1]
    return bool(name) and name not in RESERVED and not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in subject)


def has_prefix(subject: str, prefix: str) -> bool:
    """Return whether a subject matches `subjectPrefix`, in one context, or in all with `:*:`."""
    if prefix.startswith(ALL_CONTEXTS):
        return split(subject)[1].startswith(prefix[len(ALL_CONTEXTS) :])
    context, name = split(prefix)
    return context_of(subject) == context and split(subject)[1].startswith(name)
