"""The table of APIs: key, versions, first flexible version, and the listeners that serve it; the headers of their messages.

The message classes are named after the key (ApiKey.LIST_OFFSETS: ListOffsetsRequest in messages/list_offsets.py) and
are imported when first asked for, so that importing this table is cheap. They have their versions from it (`schema.api_message`).

The API and its version decide the version of a header. A request header has a client id (v1) and, for flexible versions, tagged
fields (v2); the client id keeps its two-byte length, so that any version of ApiVersions can be read. A response header is the
correlation id, with tagged fields for flexible versions. Responses to ApiVersions never have tagged fields in the header, because
the client reads them before it knows the node's versions (KIP-511). Header v0, without a client id, was used by ControlledShutdown
alone, which Kafka 4.0 removed.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from typing import Any

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.primitives import Buffer, skip_tags

BROKER = frozenset({"broker"})
CONTROLLER = frozenset({"controller"})
BOTH = BROKER | CONTROLLER


class ApiKey(IntEnum):
    """Every API that Kafka 4.4 still has; 4 to 7 went with ZooKeeper. `row` is what `Api` takes beside the key."""

    row: tuple[Any, ...]

    def __new__(cls, key: int, *row: Any) -> ApiKey:
        self = int.__new__(cls, key)
        self._value_ = key
        self.row = row
        return self

    # Key, lowest and highest version, first flexible version, listeners.
    # librdkafka turns features off when Produce is not advertised from 0, though 0-2 are rejected (KAFKA-18659).
    PRODUCE = 0, 3, 13, 9, BROKER, 0
    FETCH = 1, 4, 18, 12, BOTH
    LIST_OFFSETS = 2, 1, 11, 6, BROKER
    METADATA = 3, 0, 13, 9, BROKER
    OFFSET_COMMIT = 8, 2, 10, 8, BROKER
    OFFSET_FETCH = 9, 1, 10, 6, BROKER
    FIND_COORDINATOR = 10, 0, 6, 3, BROKER
    JOIN_GROUP = 11, 0, 9, 6, BROKER
    HEARTBEAT = 12, 0, 4, 4, BROKER
    LEAVE_GROUP = 13, 0, 5, 4, BROKER
    SYNC_GROUP = 14, 0, 5, 4, BROKER
    DESCRIBE_GROUPS = 15, 0, 6, 5, BROKER
    LIST_GROUPS = 16, 0, 5, 3, BROKER
    SASL_HANDSHAKE = 17, 0, 1, None, BOTH
    API_VERSIONS = 18, 0, 5, 3, BOTH
    CREATE_TOPICS = 19, 2, 7, 5, BOTH
    DELETE_TOPICS = 20, 1, 6, 4, BOTH
    DELETE_RECORDS = 21, 0, 2, 2, BROKER
    INIT_PRODUCER_ID = 22, 0, 6, 2, BROKER, None, True  # the highest is unstable
    OFFSET_FOR_LEADER_EPOCH = 23, 2, 4, 4, BROKER
    ADD_PARTITIONS_TO_TXN = 24, 0, 5, 3, BROKER
    ADD_OFFSETS_TO_TXN = 25, 0, 4, 3, BROKER
    END_TXN = 26, 0, 5, 3, BROKER
    WRITE_TXN_MARKERS = 27, 1, 2, 1, BROKER
    TXN_OFFSET_COMMIT = 28, 0, 6, 3, BROKER
    DESCRIBE_ACLS = 29, 1, 3, 2, BOTH
    CREATE_ACLS = 30, 1, 3, 2, BOTH
    DELETE_ACLS = 31, 1, 3, 2, BOTH
    DESCRIBE_CONFIGS = 32, 1, 4, 4, BOTH
    ALTER_CONFIGS = 33, 0, 2, 2, BOTH
    ALTER_REPLICA_LOG_DIRS = 34, 1, 2, 2, BROKER
    DESCRIBE_LOG_DIRS = 35, 1, 5, 2, BROKER
    SASL_AUTHENTICATE = 36, 0, 2, 2, BOTH
    CREATE_PARTITIONS = 37, 0, 3, 2, BOTH
    CREATE_DELEGATION_TOKEN = 38, 1, 3, 2, BOTH
    RENEW_DELEGATION_TOKEN = 39, 1, 2, 2, BOTH
    EXPIRE_DELEGATION_TOKEN = 40, 1, 2, 2, BOTH
    DESCRIBE_DELEGATION_TOKEN = 41, 1, 3, 2, BOTH
    DELETE_GROUPS = 42, 0, 3, 2, BROKER
    ELECT_LEADERS = 43, 0, 2, 2, BOTH
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1, BOTH
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, 0, BOTH
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0, BOTH
    OFFSET_DELETE = 47, 0, 0, None, BROKER
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1, BROKER
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1, BOTH
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0, BOTH
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0, BOTH
    VOTE = 52, 0, 2, 0, CONTROLLER
    BEGIN_QUORUM_EPOCH = 53, 0, 1, 1, CONTROLLER
    END_QUORUM_EPOCH = 54, 0, 1, 1, CONTROLLER
    DESCRIBE_QUORUM = 55, 0, 2, 0, BOTH
    ALTER_PARTITION = 56, 2, 3, 0, CONTROLLER
    UPDATE_FEATURES = 57, 0, 2, 0, BOTH
    ENVELOPE = 58, 0, 0, 0, CONTROLLER
    FETCH_SNAPSHOT = 59, 0, 1, 0, CONTROLLER
    DESCRIBE_CLUSTER = 60, 0, 2, 0, BOTH
    DESCRIBE_PRODUCERS = 61, 0, 0, 0, BROKER
    BROKER_REGISTRATION = 62, 0, 4, 0, CONTROLLER
    BROKER_HEARTBEAT = 63, 0, 2, 0, CONTROLLER
    UNREGISTER_BROKER = 64, 0, 0, 0, BOTH
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0, BROKER
    LIST_TRANSACTIONS = 66, 0, 2, 0, BROKER
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, 0, CONTROLLER
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1, 0, BROKER
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, 0, BROKER
    CONTROLLER_REGISTRATION = 70, 0, 0, 0, CONTROLLER
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0, 0, BROKER
    PUSH_TELEMETRY = 72, 0, 0, 0, BROKER
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0, 0, CONTROLLER
    LIST_CONFIG_RESOURCES = 74, 0, 1, 0, BROKER
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0, BROKER
    SHARE_GROUP_HEARTBEAT = 76, 1, 1, 0, BROKER
    SHARE_GROUP_DESCRIBE = 77, 1, 1, 0, BROKER
    SHARE_FETCH = 78, 1, 2, 0, BROKER
    SHARE_ACKNOWLEDGE = 79, 1, 2, 0, BROKER
    ADD_RAFT_VOTER = 80, 0, 1, 0, BOTH
    REMOVE_RAFT_VOTER = 81, 0, 0, 0, BOTH
    UPDATE_RAFT_VOTER = 82, 0, 0, 0, CONTROLLER
    INITIALIZE_SHARE_GROUP_STATE = 83, 0, 0, 0, BROKER
    READ_SHARE_GROUP_STATE = 84, 0, 0, 0, BROKER
    WRITE_SHARE_GROUP_STATE = 85, 0, 1, 0, BROKER
    DELETE_SHARE_GROUP_STATE = 86, 0, 0, 0, BROKER
    READ_SHARE_GROUP_STATE_SUMMARY = 87, 0, 1, 0, BROKER
    STREAMS_GROUP_HEARTBEAT = 88, 0, 1, 0, BROKER
    STREAMS_GROUP_DESCRIBE = 89, 0, 1, 0, BROKER
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 1, 0, BROKER
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, 0, 0, BROKER
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, 0, 0, BROKER
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93, 0, 0, 0, BROKER
    UNREGISTER_CONTROLLER = 94, 0, 0, 0, BOTH


#: The lowest version here of APIs that had earlier versions than Kafka 4.4, for clients of the releases with these. APIs of
#: controllers have no such versions here.
OLDEST = dict.fromkeys(
    (
        ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    0,
)  # fmt: skip


class Api:
    """One API; `request` and `response` are its message classes."""

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        flexible_from: int | None,
        listeners: frozenset[str],
        advertised_min: int | None = None,
        latest_unstable: bool = False,
    ) -> None:
        self.key = key
        self.name = key.name.title().replace("_", "")
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_from = flexible_from
        self.listeners = listeners
        #: The lowest version that is here, for clients of releases before 4.0 (KIP-896).
        self.oldest = OLDEST.get(key, min_version)
        # The lowest version in ApiVersions; it may be lower than the lowest version that is served.
        self.advertised_min = min_version if advertised_min is None else advertised_min
        # True if ApiVersions leaves max_version out unless unstable.api.versions.enable is set.
        self.latest_unstable = latest_unstable

    def __repr__(self) -> str:
        return f"<Api {self.name} {self.min_version}-{self.max_version}>"

    @cached_property
    def request(self) -> type[Any]:
        return self._message("Request")

    @cached_property
    def response(self) -> type[Any]:
        return self._message("Response")

    def _message(self, kind: str) -> type[Any]:
        message: type[Any] = getattr(
            import_module(f"ottla.protocol.messages.{self.key.name.lower()}"), self.name + kind
        )
        return message


APIS: dict[ApiKey, Api] = {key: Api(key, *key.row) for key in ApiKey}

_request = Struct(">hhih")
_correlation = Struct(">i")
_NEVER = 32768

# First flexible version by API key, for the fast path; unknown keys are read as not flexible.
_FLEXIBLE_FROM = [_NEVER] * (max(APIS) + 1)
for _api in APIS.values():
    if _api.flexible_from is not None:
        _FLEXIBLE_FROM[_api.key] = _api.flexible_from


def request_header_version(api_key: int, api_version: int) -> int:
    return 2 if 0 <= api_key < len(_FLEXIBLE_FROM) and api_version >= _FLEXIBLE_FROM[api_key] else 1


def response_header_version(api_key: int, api_version: int) -> int:
    return 0 if api_key == ApiKey.API_VERSIONS else request_header_version(api_key, api_version) - 1


def decode_request_header(buf: Buffer, pos: int, end: int) -> tuple[int, int, int, str | None, int]:
    """API key, version, correlation id, client id, and the position of the body."""
    try:
        api_key, api_version, correlation_id, size = _request.unpack_from(buf, pos)
        pos += 10
        client_id = None
        if size >= 0:
            client_id = str(buf[pos : pos + size], "utf-8", "replace")  # as Java reads it
            pos += size
        if 0 <= api_key < len(_FLEXIBLE_FROM) and api_version >= _FLEXIBLE_FROM[api_key]:
            tags = buf[pos]
            pos += 1
            if tags:
                pos = skip_tags(buf, pos, end, tags)
    except (IndexError, struct_error) as error:
        raise MalformedMessage(f"request header: {error}") from error
    if pos > end:
        raise MalformedMessage("request header: cut short")
    return api_key, api_version, correlation_id, client_id, pos


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    text = b"" if client_id is None else client_id.encode()
    fixed = _request.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(text))
    return fixed + text + b"\0" if request_header_version(api_key, api_version) == 2 else fixed + text


def decode_response_header(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """Correlation id, and the position of the body."""
    try:
        (correlation_id,) = _correlation.unpack_from(buf, pos)
        pos += 4
        if flexible:
            pos = skip_tags(buf, pos + 1, end, buf[pos])
    except (IndexError, struct_error) as error:
        raise MalformedMessage(f"response header: {error}") from error
    if pos > end:
        raise MalformedMessage("response header: cut short")
    return correlation_id, pos
