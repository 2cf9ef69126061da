"""The options that commands about tables share: the location, and those of its store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from ottla.cli.app import Parameter
from ottla.cli.errors import USAGE, CommandFailed
from ottla.local.running import table_locations

At = Annotated[
    str | None,
    Parameter(
        name="--at",
        help="Where tables lie: a folder, s3://BUCKET/PREFIX, gs:// or az://. Default: that of `ottla dev`.",
    ),
]
StoreOptions = Annotated[
    list[str] | None,
    Parameter(
        name="--option",
        help="NAME=VALUE of the store: endpoint, region, access_key_id, secret_access_key ...",
    ),
]


def location_of(at: str | None) -> str:
    """Return the location from the option, or else that of the only `ottla dev` that runs.

    Raises:
        CommandFailed: no location is given, and no `ottla dev` runs, or several do.
    """
    if at is not None:
        return at
    running = table_locations()
    if len(running) == 1:
        return running[0]
    if not running:
        raise CommandFailed(
            "no `ottla dev` of this user runs", "name where tables lie: --at FOLDER or --at s3://BUCKET", USAGE
        )
    raise CommandFailed(f"there are several: {', '.join(running)}", "name one of them: --at FOLDER", USAGE)


def store_options(given: Iterable[str] | None) -> dict[str, str]:
    """Return the options of a store. Raises CommandFailed for a text that is no option."""
    found = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator:
            raise CommandFailed(f"--option {each} is not NAME=VALUE", None, USAGE)
        found[name] = value
    return found
