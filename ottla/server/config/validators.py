"""Rules for single values, with Kafka's error messages. Each rule is called with a name and a parsed value."""

from __future__ import annotations

import re
from collections.abc import Sized

from ottla.protocol.records.compression import Codec
from ottla.server.address import PORT_BOUNDS, PORT_MAX, NoAddress, parse_address
from ottla.server.config.key import HIDDEN, ConfigError, Validator

ANY_VALUE = "any non-empty value"
THROTTLED = re.compile(r"\d+:\d+")
#: A password in an address: before the host (in databases up to the last @, also with slashes), or among the parameters.
_PASSWORD = re.compile(
    r"://[^/?#]*:[^/?#]*@|^(?!https?:)[^:/]+://[^:/]*:.*@|[?&][^=&]*(?:password|passwd|secret|token|credential)[^=&]*=",
    re.I,
)


def between(low: float | None, high: float | None) -> Validator:
    def check(name: str, value: float | None) -> None:
        if value is None:
            raise ConfigError(name, None, "Value must be non-null")
        if low is not None and value < low:
            raise ConfigError(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise ConfigError(name, value, f"Value must be no more than {high}")

    return check


def at_least(low: float) -> Validator:
    return between(low, None)


def one_of(*choices: str) -> Validator:
    def check(name: str, value: str | None) -> None:
        if value not in choices:
            raise ConfigError(name, value, f"String must be one of: {', '.join(choices)}")

    return check


def one_of_ignoring_case(*choices: str) -> Validator:
    upper = {choice.upper() for choice in choices}

    def check(name: str, value: str | None) -> None:
        if value is None or value.upper() not in upper:
            raise ConfigError(name, value, f"String must be one of (case insensitive): {', '.join(choices)}")

    return check


def names(*choices: str, empty: bool = True, null: bool = False) -> Validator:
    """Return a rule for lists.

    It drops repeated elements, as Kafka does (KIP-1161). If choices are given, all elements must be among them.
    """
    valid = f"[{', '.join(choices)}]" if choices else ANY_VALUE

    def check(name: str, value: list[str] | None) -> None:
        if value is None:
            if not null:
                raise _about_list(name, value, "values must not be null.")
            return
        if not value and not empty:
            raise _about_list(name, value, f"must not be empty. Valid values include: {valid}")
        value[:] = dict.fromkeys(value)
        for item in value:
            if choices:
                one_of(*choices)(name, item)
            elif not item:
                raise _about_list(name, value, "values must not be empty.")

    return check


def group_protocols(name: str, value: list[str]) -> None:
    """Check the names. The classic protocol is always among them."""
    names("consumer", "classic", "share", "streams", empty=False)(name, value)
    if "classic" not in value:
        why = "Disabling the 'classic' protocol is not supported."
        raise ConfigError(name, value, why, message=why)


def _about_list(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(name, value, why, message=f"Configuration '{name}' {why}")


def not_empty(name: str, value: Sized | None) -> None:
    if value is not None and not value:
        raise ConfigError(name, value, "String must be non-empty")


def not_null(name: str, value: object) -> None:
    if value is None:
        raise ConfigError(name, value, "entry must be non null")


def no_password(instead: str) -> Validator:
    """Return a rule for an address, or a list of them, that clients may read: it must have no password.

    `instead` says where the password goes.
    """

    def check(name: str, value: str | list[str] | None) -> None:
        if any(map(_PASSWORD.search, [value] if isinstance(value, str) else value or ())):
            text = f"{name} has a password or a key, and clients may read this configuration: {instead}"
            raise ConfigError(name, HIDDEN, text, message=text)

    return check


def level(codec: Codec) -> Validator:
    """Return the levels of a codec. The default may be outside of them, such as -1 for gzip."""
    if codec.level_min <= codec.level_default <= codec.level_max:
        return between(codec.level_min, codec.level_max)

    def check(name: str, value: int) -> None:
        if value != codec.level_default and not codec.level_min <= value <= codec.level_max:
            bounds = f"between {codec.level_min} and {codec.level_max} or equal to {codec.level_default}"
            raise ConfigError(name, value, f"Value must be {bounds}")

    return check


def throttled_replicas(name: str, value: list[str]) -> None:
    """Check for an empty value, * (all), or partition:broker pairs."""
    if value == ["*"] or all(THROTTLED.fullmatch(item) for item in value):
        return
    pairs = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    raise ConfigError(
        name, value, f"{name} must be the literal '*' or a list of replicas in the following format: {pairs}"
    )


def connection_overrides(name: str, value: str) -> None:
    """Check for host:limit pairs."""
    for entry in filter(None, (part.strip() for part in value.split(","))):
        host, _, limit = entry.rpartition(":")
        if not host or not limit.isdecimal():
            why = f"{entry} is not of the form host:limit"
            raise ConfigError(
                name, value, why, "127.0.0.1:100", message=f"Error parsing configuration property '{name}': {why}"
            )


def share_offset_reset(name: str, value: str) -> None:
    """Check for earliest, latest, or by_duration."""
    if value in ("earliest", "latest") or (value.startswith("by_duration:") and DURATION.fullmatch(value[12:])):
        return
    raise ConfigError(
        name,
        value,
        f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of the format "
        "'by_duration:<PnDTnHnMn.nS>'.",
    )


# ISO 8601 as Java's Duration parses it, without signs: at least one element, and at least one after a T.
DURATION = re.compile(
    r"P(?=\d|T\d)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{0,9})?)S)?)?", re.IGNORECASE
)


#: The largest port that a TCP header can have.


def voters(name: str, value: list[str] | None) -> None:
    if value is None:
        raise ConfigError(name, None, "")
    found: dict[str, str] = {}  # the part that may occur only once -> the entry that has it
    for entry in value:
        node_id, separator, address = entry.partition("@")
        form = "Each entry should be in the form `{id}@{host}:{port}`."
        if not separator or not node_id.isdecimal():
            raise ConfigError(name, value, form, message=f"Invalid configuration value for {name}. {form}")
        _address(name, value, address, f"entry {entry} ", form)
        for once in (f"the node id {int(node_id)}", f"the address {address.lower()}"):
            if (other := found.setdefault(once, entry)) is not entry:
                message = f"{name} has {once} twice, in {other} and in {entry}."
                raise ConfigError(name, value, "", "each voter has an id and an address of its own", message=message)


def bootstrap_servers(name: str, value: list[str] | None) -> None:
    if value is None:
        raise ConfigError(name, None, "")
    for entry in value:
        _address(name, value, entry, f"{entry} ", 'Each entry should be in the form "{host}:{port}"')


def _address(name: str, value: object, address: str, entry: str, form: str) -> None:
    try:
        parse_address(address)
    except NoAddress as fault:
        if fault.part == PORT_BOUNDS:
            message = f"The port of {entry}for the configuration {name} is not between 1 and {PORT_MAX}."
        else:
            message = f"Failed to parse {fault.part} from {entry}for the configuration {name}. {form}"
        raise ConfigError(name, value, form, message=message) from None
