"""Hints for a person at a terminal, and the exit code of the command, for each error that the client library raises."""

from __future__ import annotations

from ottla.cli.errors import FAILED, TIMED_OUT, USAGE, CommandFailed
from ottla.client.access import StarInName
from ottla.client.cluster import NoConnection
from ottla.client.failures import Failure, Kind
from ottla.protocol.errors import ErrorCode
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.wire import AnotherProtocol, ChannelClosed, HandshakeLost, RequestLost, SecurityRejected

EXIT_CODES = {
    Kind.TIMED_OUT: TIMED_OUT,
    **dict.fromkeys(
        (
            Kind.WRONG,
            Kind.NO_ADDRESS,
            Kind.NOT_HOST_PORT,
            Kind.NOT_ADMIN_LISTENER,
            Kind.NO_SUCH_PARTITION,
            Kind.NO_SUCH_BROKER,
            Kind.NO_SUCH_NODE,
        ),
        USAGE,
    ),
}

NOTHING_THERE = "is a broker running there?"

OF_KINDS = {
    Kind.NO_BROKER_ANSWERS: f"{NOTHING_THERE} `ottla dev` starts a cluster to try things on",
    Kind.NO_ADDRESS: "write -b HOST:PORT",
    Kind.NOT_HOST_PORT: "for example -b localhost:9092",
    Kind.NOT_ADMIN_LISTENER: "for example --admin 1@kafka-1:9644",
    Kind.NO_SUCH_PARTITION: "`ottla topic list`",
    Kind.NO_SUCH_BROKER: "`ottla broker list` shows all, also those that are fenced",
    Kind.NO_SUCH_NODE: "`ottla cluster info` shows the brokers and the leader of the quorum",
    Kind.BROKER_GONE: "`ottla cluster info` shows who is",
    Kind.TOO_FEW_BROKERS: "start another broker, or lower their replication factor with `ottla move run TOPIC --to BROKERS`",
}

_WHY = "`ottla acl why USER OPERATION RESOURCE` says which entry is missing, if you may ask"

OF_CODES: dict[int, str] = {
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
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer: authorizer.class.name in their files (docs/SECURITY.md), or `ottla dev --secure`",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the topic; {_WHY}",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the group; {_WHY}",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the transactional id; {_WHY}",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: f"no permission: ask for an ACL on the cluster; {_WHY}",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens are for connections with a login by SASL: pass --config",
}


def as_command_failed(failure: Failure) -> CommandFailed:
    """Return the command line's text for a failure of any package."""
    if isinstance(failure, CommandFailed):
        return failure
    return CommandFailed(failure.cause, hint_of(failure), EXIT_CODES.get(failure.kind, FAILED))


def hint_of(failure: Failure) -> str | None:
    """Return the remedy in words of the command line, or else the failure's own."""
    if isinstance(failure, NoConnection) and (hint := _of_connection(failure)):
        return hint
    if isinstance(failure, StarInName) and failure.beginning is not None:
        return failure.prefixed("with --prefixed, or with prefixed: true in a file")
    return OF_KINDS.get(failure.kind) or failure.remedy or (OF_CODES.get(failure.code) if failure.code else None)


def _of_connection(failure: NoConnection) -> str | None:
    """Return the hint from the lost channels and the time limit; None if only the failure's kind helps."""
    if failure.doing:
        return f"while {failure.doing}"
    hints = (hint for each in failure.lost if (hint := _lost(*each)) != NOTHING_THERE)
    return next(hints, None if failure.kind in OF_KINDS else NOTHING_THERE)


def _lost(fault: ChannelClosed, security: PeerSecurity, answered: bool) -> str:
    """Return the hint for a lost channel: a listener that expects TLS or a login just closes the connection."""
    if isinstance(fault, SecurityRejected):
        return _rejected(str(fault))
    if isinstance(fault, AnotherProtocol):
        return "-b takes the address of a Kafka listener, not that of a proxy or of an admin listener"
    if answered or not isinstance(fault, (HandshakeLost, RequestLost)):
        return NOTHING_THERE
    closed = "it closed the connection at the first request, as a listener does that expects"
    if security.tls is None and security.login is None:
        return f"{closed} TLS or a login: --config FILE has security.protocol=SSL, SASL_SSL or SASL_PLAINTEXT and what belongs to it"
    if security.tls is None:
        return f"{closed} TLS: security.protocol=SASL_SSL"
    return f"{closed} a login: security.protocol=SASL_SSL with sasl.mechanism and sasl.jaas.config"


def _rejected(reason: str) -> str:
    if "certificate" in reason:
        return "ssl.truststore.location must have the authority that signed the broker's certificate, and -b a name that is in it"
    if "handshake failed" in reason:
        return "does this listener speak TLS? Without it: security.protocol=PLAINTEXT or SASL_PLAINTEXT"
    if ErrorCode.ILLEGAL_SASL_STATE.name in reason:
        return "this listener has no login: security.protocol=PLAINTEXT or SSL"
    return "sasl.mechanism and sasl.jaas.config must have the user's mechanism, name and password (`ottla user list`)"
