"""The text of a properties file and of `name=value` overrides as names and values, which are not parsed yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.server.config.errors import ConfigError


def read_properties(data: bytes, path: str) -> dict[str, str]:
    import javaproperties  # imported here: it takes 25 ms, and there may be no file to read

    try:
        return dict(javaproperties.loads(data.decode("utf-8")))
    except (UnicodeDecodeError, ValueError) as error:
        message = f"{path} is not a properties file: {error}"
        raise ConfigError("server.properties", path, str(error), "it must be UTF-8 text", message=message) from error


def read_overrides(overrides: Iterable[str]) -> dict[str, str]:
    properties = {}
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator or not name.strip():
            message = f"--override {override} is not of the form name=value"
            raise ConfigError(name, override, "", "--override log.dirs=/var/lib/ottla", message=message)
        properties[name.strip()] = value.strip()
    return properties


def with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Sets both node.id and broker.id, which are two names of one property."""
    both = dict(static)
    old, new = both.get("broker.id"), both.get("node.id")
    if old is not None and new is not None and old.strip() != new.strip():
        raise ConfigError(
            "broker.id", old, "", "remove broker.id", message="You must set `node.id` to the same value as `broker.id`."
        )
    if new is not None:
        both["broker.id"] = new
    elif old is not None:
        both["node.id"] = old
    return both
