"""A properties file, and the two names of a node's id in it.

The wheel of the Spark connector has neither this module nor the library that it imports.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.server.config.key import ConfigError


def read_properties(data: bytes, path: str) -> dict[str, str]:
    import javaproperties  # imported here: it takes 25 ms, and there may be no file to read

    try:
        return dict(javaproperties.loads(data.decode("utf-8")))
    except (UnicodeDecodeError, ValueError) as error:
        message = f"{path} is not a properties file: {error}"
        raise ConfigError("server.properties", path, str(error), "it must be UTF-8 text", message=message) from error


def with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Set both node.id and broker.id, which are two names of the same property."""
    both = dict(static)
    old, new = both.get("broker.id"), both.get("node.id")
    if old is not None and new is not None and old.strip() != new.strip():
        message = "You must set `node.id` to the same value as `broker.id`."
        raise ConfigError("broker.id", old, "", "remove broker.id", message=message)
    if new is not None:
        both["broker.id"] = new
    elif old is not None:
        both["node.id"] = old
    return both
