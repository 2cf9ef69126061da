"""A configuration: its name, type, default, rule, importance, description, whether it can be changed dynamically, and the error of a wrong value.

Values are parsed as Kafka parses them and written as Kafka writes them, since clients compare both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Any, Final, TypeAlias

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.slotted import frozen
from ottla.server.extras import missing


class Type(IntEnum):
    """The type of a configuration. The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(Enum):
    """The scope in which a broker's configuration can be changed dynamically."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


# The short names of the tables of configurations.
BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Scope.PER_BROKER, Scope.CLUSTER_WIDE


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


#: A rule for single values. The value has the type in the key's `Type`.
Validator: TypeAlias = Callable[[str, Any], None]
#: Parsed values by name. Each has the type of its key.
Values: TypeAlias = Mapping[str, Any]
#: This is the `default` of a configuration that must be set.
REQUIRED: Final = _Required()
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
DOUBLE_MAX = 1.7976931348623157e308
HIDDEN = "[hidden]"

LIMITS = {Type.SHORT: 2**15, Type.INT: 2**31, Type.LONG: 2**63}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")


@frozen
class ConfigKey:
    """One row of a table."""

    name: str
    type: Type
    default: object
    importance: Importance
    doc: str
    validator: Validator | None = None
    dynamic: Scope = Scope.READ_ONLY
    internal: bool = False

    @property
    def secret(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def parse(self, text: str | None) -> Any:
        """Parse and check a text; None stands for an absent value."""
        value = None if text is None else parse(self.name, text, self.type)
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    def to_text(self, value: object) -> str | None:
        return to_text(value, self.type)


def parse(name: str, text: str, kind: Type) -> Any:
    """Parse a text, without the check of the rule."""
    text = text.strip()
    match kind:
        case Type.BOOLEAN:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise ConfigError(name, text, "Expected value to be either true or false")
        case Type.SHORT | Type.INT | Type.LONG:
            limit = LIMITS[kind]
            # No number of these types has more than 20 digits, and int() of a very long text would take quadratic time.
            if _INTEGER.fullmatch(text) and len(text) <= 20 and -limit <= int(text) < limit:
                return int(text)
            raise ConfigError(name, text, f"Not a number of type {kind.name}")
        case Type.DOUBLE:
            if _DOUBLE.fullmatch(text):
                return float(text.rstrip("fFdD") if not text.endswith(("NaN", "Infinity")) else text)
            raise ConfigError(name, text, f"Not a number of type {kind.name}")
        case Type.LIST:
            return [item.strip() for item in text.split(",")] if text else []
    return text


def to_text(value: Any, kind: Type | None) -> str | None:
    """Format a value; passwords are hidden."""
    if value is None:
        return None
    match kind:
        case Type.PASSWORD:
            return HIDDEN
        case Type.LIST:
            return ",".join(value)
        case Type.BOOLEAN:
            return "true" if value else "false"
        case Type.DOUBLE:
            return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """Format a number as Java does: plain from 10^-3 to below 10^7, otherwise with E and without a plus sign."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    from decimal import Decimal  # imported late, because it takes 2 ms of a node's start

    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def table(*rows: ConfigKey) -> dict[str, ConfigKey]:
    """Return rows by name; asserts that each name is declared once."""
    by_name = {row.name: row for row in rows}
    assert len(by_name) == len(rows), "a configuration is declared twice"
    return by_name


class ConfigError(ValueError):
    """A value or a name is invalid. The text is Kafka's for the same error.

    `what_to_try` is a remedy for the operator; it is not sent to clients.
    """

    def __init__(
        self,
        name: str,
        value: object,
        why: str,
        what_to_try: str = "",
        *,
        message: str | None = None,
        code: ErrorCode = ErrorCode.INVALID_CONFIG,
    ) -> None:
        reason = f": {why}" if why else ""
        super().__init__(message or f"Invalid value {shown(value)} for configuration {name}{reason}")
        self.name = name
        self.value = value
        self.why = why
        self.what_to_try = what_to_try
        self.code = code

    def as_reply(self) -> KafkaError:
        """Return the error for the client."""
        return KafkaError(self.code, str(self))


def shown(value: object) -> str:
    """Format a value in a message as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def require(package: str, what: str, name: str, value: object) -> None:
    """Reject a property whose package is not installed. Raises ConfigError: the package is missing."""
    if reason := missing(package, what):
        remedy = f"install {package} of your distribution, or pip install {package} with a compiler"
        raise ConfigError(name, str(value), reason, remedy)
