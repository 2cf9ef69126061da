"""The error of an invalid configuration."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.extras import missing


class ConfigError(ValueError):
    """A value or a name is invalid. The text is that of Kafka for the same error.

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
        """Returns the error for the client."""
        return KafkaError(self.code, str(self))


def shown(value: object) -> str:
    """Formats a value in a message as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def require(package: str, what: str, name: str, value: object) -> None:
    """Refuse the property that asks for it.

    Raises:
        ConfigError: the package is not there.
    """
    if reason := missing(package, what):
        remedy = f"install {package} of your distribution, or pip install {package} with a compiler"
        raise ConfigError(name, str(value), reason, remedy)
