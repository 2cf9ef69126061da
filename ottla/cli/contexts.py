"""Named clusters of a user: addresses and a file of client properties, in a JSON file of the configuration directory.

    {"current": "prod", "contexts": {"prod": {"bootstrap": "kafka-1:9092", "config": "/home/me/prod.properties"}}}

The file has no passwords: they are in the files of client properties.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import NamedTuple

from ottla.cli.errors import USAGE, CommandFailed
from ottla.client.failures import did_you_mean


class ClientContext(NamedTuple):
    """The bootstrap servers, and the path of a file of client properties."""

    bootstrap: str | None = None
    config: str | None = None


class Contexts(NamedTuple):
    """All contexts of the user, and the name of the one that commands use."""

    current: str | None
    named: dict[str, ClientContext]


def path() -> str:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(folder, "ottla", "contexts.json")


def load() -> Contexts:
    """Read the file. If it does not exist, there are no contexts.

    Raises:
        CommandFailed: it cannot be read, or was damaged.
    """
    try:
        with open(path(), encoding="utf-8") as file:
            data = json.load(file)
        named = {name: ClientContext(row.get("bootstrap"), row.get("config")) for name, row in data["contexts"].items()}
        return Contexts(data.get("current"), named)
    except FileNotFoundError:
        return Contexts(None, {})
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as fault:
        raise CommandFailed(f"{path()} cannot be read: {fault}", "mend or remove it", USAGE) from None


def save(contexts: Contexts) -> None:
    """Replace the file.

    Raises:
        CommandFailed: it cannot be written.
    """
    data = {"current": contexts.current, "contexts": {name: row._asdict() for name, row in contexts.named.items()}}
    target = path()
    written = f"{target}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(written, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2)
        os.replace(written, target)
    except OSError as fault:
        with suppress(OSError):
            os.unlink(written)
        raise CommandFailed(f"{target} cannot be written: {fault.strerror}") from None


def current(name: str | None) -> ClientContext:
    """Return the context of this name. None means the current one; it is empty if none is current.

    Raises:
        CommandFailed: there is no context of this name.
    """
    contexts = load()
    if name is None and contexts.current is None:
        return ClientContext()
    wanted = name or contexts.current or ""
    if wanted not in contexts.named:
        hint = did_you_mean(wanted, contexts.named) or "`ottla context list` shows those that there are"
        raise CommandFailed(f"there is no context {wanted!r}", hint, USAGE)
    return contexts.named[wanted]
