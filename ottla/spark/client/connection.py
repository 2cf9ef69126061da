"""A connection of Spark's processes to a broker: the client library's blocking one, with the errors that a user of Spark sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.client.blocking import BlockingConnection, BlockingSecurity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.wire import ANY_VERSION, AnotherProtocol, SecurityRejected, UnreadableResponse
from ottla.spark.errors import ConnectionLost, ConnectorError

CLIENT_ID = "pyspark-ottla"
#: A Fetch requests at most FETCH_BYTES_MAX, or one batch, which Kafka's own limit of a request keeps below 100 MiB.
RESPONSE_BYTES_MAX = 256 * 1024 * 1024
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024


class SparkConnection:
    """A connection that has agreed on versions and logged in. Raises ConnectionLost when it ends."""

    def __init__(self, host: str, port: int, security: BlockingSecurity) -> None:
        with _as_errors_of_spark(f"{host}:{port} cannot be reached: "):
            self._connection = BlockingConnection(
                host,
                port,
                CLIENT_ID,
                security,
                receive_buffer_bytes=_RECEIVE_BUFFER_BYTES,
                response_bytes_max=RESPONSE_BYTES_MAX,
            )

    @property
    def is_due(self) -> bool:
        """Return True if the SASL session ends soon, so that a new connection has to take over."""
        return self._connection.is_due

    def call(self, request: object, version_max: int = ANY_VERSION) -> Any:
        """Send a request and return its response. No other request may be in flight."""
        self.send(request, version_max)
        return self.receive()

    def send(self, request: object, version_max: int = ANY_VERSION) -> None:
        """Send a request in the highest version up to `version_max` that both sides have.

        Raises ConnectorError if there is none.
        """
        with _as_errors_of_spark():
            self._connection.send(request, None, version_max)

    def receive(self) -> Any:
        """Return the response to the oldest request that is in flight."""
        with _as_errors_of_spark():
            return self._connection.receive()

    def close(self) -> None:
        """Close the connection. It may be called again."""
        self._connection.close()


@contextmanager
def _as_errors_of_spark(lost: str = "") -> Iterator[None]:
    """Raise errors of a connection as Spark's errors.

    A lost connection is worth another attempt. `lost` is the beginning of its message.
    """
    try:
        yield
    except SecurityRejected as fault:
        raise ConnectorError(str(fault), code=ErrorCode.SASL_AUTHENTICATION_FAILED) from None
    except (AnotherProtocol, UnreadableResponse) as fault:
        raise ConnectorError(str(fault), "is it a Kafka broker?") from None
    except KafkaError as fault:
        raise ConnectorError(fault.message, code=fault.code) from None
    except OSError as fault:
        raise ConnectionLost(f"{lost}{fault}") from None
