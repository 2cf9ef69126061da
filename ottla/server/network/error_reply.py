"""Makes a response of each API from an error, for a handler that has failed as a whole.

Most responses have an error code of their own. In the others, every element that answers an element of the request gets the
code. `MIRRORED` lists these elements, with the names in the two declarations. The values are those of Apache Kafka's
getErrorResponse methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import KafkaError
from ottla.protocol.schema import NONE, Field, Versions, fields, parse_versions

if TYPE_CHECKING:  # these modules are loaded when their API is first used
    from ottla.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
    from ottla.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
    from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
    from ottla.protocol.messages.join_group import JoinGroupResponse


class EachElement(NamedTuple):
    """Puts one element into the response's `target` for each element of the request's `source`."""

    source: str
    target: str
    # Fields copied from element to element; "group_id=" copies the element itself, "topic_name=name" the field `name`.
    copy: tuple[str, ...]
    inner: EachElement | None = None
    fixed: tuple[tuple[str, object], ...] = ()
    error_field: str = "error_code"


class Mirror(NamedTuple):
    """One row; versions outside the range have an error code at the top."""

    each: EachElement
    versions: Versions = parse_versions("0+")


def _topics(inner: EachElement, *copy: str, source: str = "topics", target: str = "topics") -> tuple[Mirror, ...]:
    return (Mirror(EachElement(source, target, copy or ("name",), inner)),)


def _elements(source: str, target: str, *copy: str) -> tuple[Mirror, ...]:
    return (Mirror(EachElement(source, target, copy)),)


def _partitions(copy: str, source: str = "partitions", target: str = "partitions", **fixed: object) -> EachElement:
    return EachElement(source, target, (copy,), fixed=tuple(fixed.items()))


_BY_INDEX = _partitions("partition_index")
_INDEXES = _partitions("partition_index=", "partition_indexes")
_PRODUCED = _partitions("index", "partition_data", "partition_responses", base_offset=-1)
_ELECTED = _partitions("partition_id=", target="partition_result")
_COORDINATORS = EachElement(
    "coordinator_keys", "coordinators", ("key=",), fixed=(("node_id", -1), ("host", ""), ("port", -1))
)
_FETCHED = _partitions("partition_index=", "partition_indexes", committed_offset=-1, metadata="")
_ADDED = EachElement("partitions", "results_by_partition", ("partition_index=",), error_field="partition_error_code")
_QUOTA_OF = EachElement("entity", "entity", ("entity_type", "entity_name"), error_field="")
_CONFIG = ("resource_type", "resource_name")
#: The APIs of the share coordinator identify topics by id.
_STATE = _topics(_partitions("partition"), "topic_id", target="results")

MIRRORED: dict[ApiKey, tuple[Mirror, ...]] = {
    ApiKey.PRODUCE: _topics(_PRODUCED, "name", "topic_id", source="topic_data", target="responses"),
    ApiKey.LIST_OFFSETS: _topics(_BY_INDEX),
    ApiKey.METADATA: _elements("topics", "topics", "name", "topic_id"),
    ApiKey.OFFSET_COMMIT: _topics(_BY_INDEX, "name", "topic_id"),
    ApiKey.OFFSET_FETCH: (
        Mirror(EachElement("groups", "groups", ("group_id",)), parse_versions("8+")),
        Mirror(EachElement("topics", "topics", ("name",), _FETCHED), parse_versions("0-1")),
    ),
    ApiKey.FIND_COORDINATOR: (Mirror(_COORDINATORS, parse_versions("4+")),),
    ApiKey.DESCRIBE_GROUPS: _elements("groups", "groups", "group_id="),
    ApiKey.CREATE_TOPICS: _elements("topics", "topics", "name"),
    ApiKey.DELETE_TOPICS: (
        Mirror(EachElement("topics", "responses", ("name", "topic_id")), parse_versions("6+")),
        Mirror(EachElement("topic_names", "responses", ("name=",)), parse_versions("0-5")),
    ),
    ApiKey.DELETE_RECORDS: _topics(_partitions("partition_index", low_watermark=-1)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics(_partitions("partition"), "topic"),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Mirror(
            EachElement("v3_and_below_topics", "results_by_topic_v3_and_below", ("name",), _ADDED),
            parse_versions("0-3"),
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        Mirror(
            EachElement("markers", "markers", ("producer_id",), EachElement("topics", "topics", ("name",), _INDEXES))
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: _topics(_BY_INDEX, "name", "topic_id"),
    ApiKey.CREATE_ACLS: _elements("creations", "results"),
    ApiKey.DELETE_ACLS: _elements("filters", "filter_results"),
    ApiKey.DESCRIBE_CONFIGS: _elements("resources", "results", *_CONFIG),
    ApiKey.ALTER_CONFIGS: _elements("resources", "responses", *_CONFIG),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _elements("resources", "responses", *_CONFIG),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (),  # topics are below directories: see _by_directory
    ApiKey.CREATE_PARTITIONS: _elements("topics", "results", "name"),
    ApiKey.DELETE_GROUPS: _elements("groups_names", "results", "group_id="),
    ApiKey.ELECT_LEADERS: _topics(_ELECTED, "topic", source="topic_partitions", target="replica_election_results"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _topics(_BY_INDEX, target="responses"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _topics(_INDEXES),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _elements("users", "results", "user=name"),
    ApiKey.ALTER_CLIENT_QUOTAS: (Mirror(EachElement("entries", "entries", (), _QUOTA_OF)),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (),  # users are named in two lists: see _by_user
    ApiKey.DESCRIBE_PRODUCERS: _topics(_INDEXES),
    ApiKey.DESCRIBE_TRANSACTIONS: _elements("transactional_ids", "transaction_states", "transactional_id="),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _elements("group_ids", "groups", "group_id="),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _elements("topics", "topics", "name"),
    ApiKey.SHARE_GROUP_DESCRIBE: _elements("group_ids", "groups", "group_id="),
    ApiKey.STREAMS_GROUP_DESCRIBE: _elements("group_ids", "groups", "group_id="),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _elements("groups", "groups", "group_id"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _STATE,
    ApiKey.READ_SHARE_GROUP_STATE: _STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _STATE,
}

#: Further values of a failed response, if they are not the declared defaults.
AT_TOP: dict[ApiKey, dict[str, object]] = {
    ApiKey.JOIN_GROUP: {"generation_id": -1, "protocol_name": ""},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "host": "", "port": -1},
}

FETCH_WITH_PARTITIONS = parse_versions("4-12")
JOIN_GROUP_NULLABLE_NAME = 7
FIND_COORDINATOR_BATCHED = 4
#: The APIs whose responses have the error in both places. In Metadata for all topics the top is the only place.
BOTH_PLACES = {
    ApiKey.ELECT_LEADERS: parse_versions("1+"),
    ApiKey.METADATA: parse_versions("13+"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: parse_versions("0+"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: parse_versions("0+"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: parse_versions("0+"),
}


def error_reply(api_key: int, version: int, request: Any, error: KafkaError) -> Any:
    """Return the API's response for `error`; None if the request wants no response (Produce with acks=0)."""
    key = ApiKey(api_key)
    if key is ApiKey.PRODUCE and request.acks == 0:
        return None
    response = APIS[key].response()
    mirrors = [mirror for mirror in MIRRORED.get(key, ()) if version in mirror.versions]
    if not mirrors or version in BOTH_PLACES.get(key, NONE):
        _set_error(response, "error_code", error, version)
        for name, value in AT_TOP.get(key, {}).items():
            setattr(response, name, value)
    for mirror in mirrors:
        setattr(response, mirror.each.target, _mirror(mirror.each, request, type(response), error, version))
    special = SPECIAL.get(key)
    if special is not None:
        special(response, request, version, error)
    return response


def _mirror(
    each: EachElement, source: object, response_class: type[object], error: KafkaError, version: int
) -> list[Any]:
    element_class = _element_class(response_class, each.target)
    elements = []
    for item in getattr(source, each.source) or ():
        element = element_class()
        for names in each.copy:
            target, separator, name = names.partition("=")
            value = getattr(item, name or target) if name or not separator else item
            # A name may be null in a request: if the topic id is set, or because of a mistake of the client (Metadata v10 and
            # v11).
            if value is not None or version in _field(element_class, target).nullable:
                setattr(element, target, value)
        for name, fixed in each.fixed:
            setattr(element, name, fixed)
        if each.inner is None:
            _set_error(element, each.error_field, error, version)
        else:
            setattr(element, each.inner.target, _mirror(each.inner, item, element_class, error, version))
            if each.inner.error_field == "":
                _set_error(element, each.error_field, error, version)
        elements.append(element)
    return elements


def _field(cls: type[object], name: str) -> Field:
    return next(field for field in fields(getattr(cls, "__plain__", cls)) if field.name == name)


def _element_class(cls: type[object], name: str) -> type[Any]:
    plain = getattr(cls, "__plain__", cls)
    field = _field(cls, name)
    assert field.type.item is not None and field.type.item.struct is not None, f"{plain.__name__}.{name}"
    return field.type.item.struct


def _set_error(target: Any, name: str, error: KafkaError, version: int) -> None:
    if name in target.__field_names__:
        setattr(target, name, int(error.code))
    custom = error.own_words
    for field in fields(target.__plain__):
        if field.name == "error_message" and version in (field.versions if custom else field.nullable):
            target.error_message = custom


def _fetch(response: FetchResponse, request: FetchRequest, version: int, error: KafkaError) -> None:
    """Put the error at the top and, up to v12, into every partition, for the oldest clients."""
    response.session_id = request.session_id
    if version in FETCH_WITH_PARTITIONS:
        partition = EachElement(
            "partitions", "partitions", ("partition_index=partition",), fixed=(("high_watermark", -1),)
        )
        response.responses = _mirror(
            EachElement("topics", "responses", ("topic",), partition), request, type(response), error, version
        )


def _join_group(response: JoinGroupResponse, request: object, version: int, error: KafkaError) -> None:
    response.protocol_name = None if version >= JOIN_GROUP_NULLABLE_NAME else ""


def _by_directory(
    response: AlterReplicaLogDirsResponse, request: AlterReplicaLogDirsRequest, version: int, error: KafkaError
) -> None:
    each = EachElement("topics", "results", ("topic_name=name",), _partitions("partition_index="))
    response.results = [
        result for directory in request.dirs for result in _mirror(each, directory, type(response), error, version)
    ]


def _by_user(
    response: AlterUserScramCredentialsResponse,
    request: AlterUserScramCredentialsRequest,
    version: int,
    error: KafkaError,
) -> None:
    result = _element_class(type(response), "results")
    named = {item.name for item in request.deletions} | {item.name for item in request.upsertions}
    for name in sorted(named):
        element = result(user=name)
        _set_error(element, "error_code", error, version)
        response.results.append(element)


def _find_coordinator(response: FindCoordinatorResponse, request: object, version: int, error: KafkaError) -> None:
    """In versions with a single coordinator, Kafka's error_message repeats the text of the error code."""
    if 1 <= version < FIND_COORDINATOR_BATCHED:
        response.error_message = error.code.message


SPECIAL: dict[ApiKey, Any] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.FETCH: _fetch,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _by_directory,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _by_user,
}
