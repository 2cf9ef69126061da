"""Lines of Java's properties format: the subset that a container writes and reads."""

from __future__ import annotations

from ottla.container.settings import ContainerError
from ottla.server.config.errors import ConfigError
from ottla.server.config.load import read_properties


def read_value(where: str, text: str) -> str:
    """A variable's value as a properties file has it: escapes resolved, blanks in front left out."""
    if "\\" not in text and "\n" not in text:
        return text.strip()
    # A line that ends in the middle of an escape would swallow the next property; there is none here.
    return read_file(f"x={text}".encode(), where).get("x", "")


def read_file(data: bytes, where: str) -> dict[str, str]:
    try:
        return read_properties(data, where)
    except ConfigError as fault:
        raise ContainerError(str(fault), where, fault.what_to_try) from None


def write_file(properties: dict[str, str]) -> str:
    """Text that reads back to the same properties."""
    import javaproperties

    return str(javaproperties.dumps(properties, timestamp=False))
