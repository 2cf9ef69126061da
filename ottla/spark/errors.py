"""The error that a user of `format("ottla")` sees: the cause and the remedy.

Spark prints it as the last line of its own exception.
"""

from __future__ import annotations

from ottla.columns.batches import ColumnsError
from ottla.protocol.errors import ErrorCode


class ConnectorError(ColumnsError):
    """The source or the sink cannot go on. `code` is Kafka's error code if a broker has sent one."""


class ConnectionLost(ConnectorError):
    """The broker cannot be reached, or the connection has ended. Another attempt may succeed."""


def name_of(code: int) -> str:
    """Return the name of an error code, also for a code of a newer Kafka."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


def check(place: str, code: int, message: str | None = None) -> None:
    """Check an error code in a response.

    Raises:
        ConnectorError: it is not NONE.
    """
    if code:
        text = f"{place}: {name_of(code)}" + (f" ({message})" if message else "")
        raise ConnectorError(text, _REMEDIES.get(code), code)


_REMEDIES: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the user needs an ACL on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the user needs an ACL on the group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs an ACL on transactional ids with the sink's prefix",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the user needs IDEMPOTENT_WRITE or an ACL on the cluster",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or correct its name",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower the option transactionTimeoutMs, or raise transaction.max.timeout.ms of the brokers",
}
