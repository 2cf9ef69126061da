"""Turns a broker's error code into the failure of a command: the place, Kafka's reason, and what to try."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.errors import FAILED, TIMED_OUT, CommandFailed, did_you_mean
from ottla.protocol.errors import ErrorCode

_WHY = "`ottla acl why USER OPERATION RESOURCE` says which entry is missing, if you may ask"

HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`ottla topic list` shows what there is",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or pass --if-not-exists",
    ErrorCode.INVALID_REPLICATION_FACTOR: "lower --replication-factor, or start more brokers (`ottla cluster info`)",
    ErrorCode.INVALID_PARTITIONS: "a topic has at least 1 partition, and never less than before (`ottla topic describe`)",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "names have 1 to 249 letters, digits, dots, underscores and dashes",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`ottla broker list` shows the brokers that there are",
    ErrorCode.INVALID_CONFIG: "`ottla config get` shows names and present values",
    ErrorCode.GROUP_ID_NOT_FOUND: "`ottla group list` shows what there is",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`ottla txn list` shows what there is",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first (`ottla group describe` shows them)",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop its consumers first (`ottla group describe` shows them)",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's members have other assignors, or are no consumers: choose another group",
    ErrorCode.INVALID_SESSION_TIMEOUT: "it is bounded by the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the consumers of the topic first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`ottla topic describe` shows the offsets there are",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or send less in one record",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk is full or has failed: `ottla broker log-dirs` and `ottla cluster health` show which",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`ottla cluster health` shows what is missing; see min.insync.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "`ottla cluster health` shows what is missing",
    ErrorCode.LEADER_NOT_AVAILABLE: "`ottla cluster health` shows what is missing",
    ErrorCode.UNSUPPORTED_VERSION: "this broker is too old or too new for this command",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer: authorizer.class.name in their files, docs/SECURITY.md",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the topic; {_WHY}",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the group; {_WHY}",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the transactional id; {_WHY}",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the cluster; {_WHY}",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens are for connections with a login by SASL: pass --config",
}


NOT_THERE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def code_of(number: int) -> ErrorCode:
    """Return the ErrorCode of a number; a code of a newer Kafka becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode(number) if number in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def failure(
    place: str, number: int, message: str | None = None, *, name: str = "", known: Iterable[str] = ()
) -> CommandFailed:
    """Returns the failure for an error code. If `name` does not exist, it suggests similar names of `known`."""
    code = code_of(number)
    hint = (did_you_mean(name, known) if code in NOT_THERE else None) or HINTS.get(code)
    exit_code = TIMED_OUT if code is ErrorCode.REQUEST_TIMED_OUT else FAILED
    return CommandFailed(f"{place}: {message or code.message} ({code.name})", hint, exit_code, code)


def check(place: str, number: int, message: str | None = None) -> None:
    """Raise for any code but NONE."""
    if number:
        raise failure(place, number, message)
