"""Error codes of the protocol, and the exceptions of this package.

`KafkaError` carries the error code of a response: for an invalid request, or because of the cluster's state. `ProtocolError`
means that bytes cannot be decoded, or an object cannot be encoded. The messages are Ottla's; clients decide by the code alone.
"""

from __future__ import annotations

from enum import IntEnum

RETRIABLE = True


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.4, its message in words, and whether clients retry by themselves."""

    message: str
    retriable: bool

    def __new__(cls, code: int, message: str = "", retriable: bool = False) -> ErrorCode:
        self = int.__new__(cls, code)
        self._value_ = code
        self.message = message
        self.retriable = retriable
        return self

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode:
        """Map codes of later releases to UNKNOWN_SERVER_ERROR, as Kafka does."""
        return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1, "the server failed in an unexpected way"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset is outside the range of offsets of this replica"
    CORRUPT_MESSAGE = 2, "the batch fails its checksum, is too large or lacks the key that compaction needs", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "this server does not have that topic or partition", RETRIABLE
    INVALID_FETCH_SIZE = 4, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "this broker is not the leader, or not a replica, of the partition", RETRIABLE
    REQUEST_TIMED_OUT = 7, "the request timed out", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not available here", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "the message is larger than the server accepts"
    STALE_CONTROLLER_EPOCH = 11, "the controller has moved to another node"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata of the offset is too large"
    NETWORK_EXCEPTION = 13, "the connection was lost before the response arrived", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still loading its state", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available", RETRIABLE
    NOT_COORDINATOR = 16, "this broker is not the coordinator", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "the topic name is invalid or the topic cannot be used for this"
    RECORD_LIST_TOO_LARGE = 18, "the batch is larger than a segment of the log"
    NOT_ENOUGH_REPLICAS = 19, "fewer replicas are in sync than the topic requires", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "written to the log, but to fewer in-sync replicas than required", RETRIABLE
    INVALID_REQUIRED_ACKS = 21, "the required number of acknowledgements is not one of -1, 0 and 1"
    ILLEGAL_GENERATION = 22, "the generation is not the group's current one"
    INCONSISTENT_GROUP_PROTOCOL = 23, "no protocol of the member fits the other members' protocols"
    INVALID_GROUP_ID = 24, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, "the coordinator does not know this member"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside what the broker allows"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the committed offset data is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, "the timestamp is outside the accepted range"
    UNSUPPORTED_SASL_MECHANISM = 33, "the SASL mechanism is not enabled here"
    ILLEGAL_SASL_STATE = 34, "the request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, "the version of the API is not supported"
    TOPIC_ALREADY_EXISTS = 36, "a topic of this name exists already"
    INVALID_PARTITIONS = 37, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, "the replication factor is below one or above the number of usable brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is invalid"
    INVALID_CONFIG = 40, "the configuration is invalid"
    NOT_CONTROLLER = 41, "this node is not the active controller", RETRIABLE
    INVALID_REQUEST = 42, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the log's message format cannot serve this request"
    POLICY_VIOLATION = 44, "a policy of the server forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "the sequence number does not follow the last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, "the sequence number was seen already"
    INVALID_PRODUCER_EPOCH = 47, "the producer epoch is older than the current one"
    INVALID_TXN_STATE = 48, "the transaction is not in a state that allows this"
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is above the broker's maximum"
    CONCURRENT_TRANSACTIONS = 51, "another operation on the same transaction is still running", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "the coordinator that sent the marker has been replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, "no authorizer is configured here"
    OPERATION_NOT_ATTEMPTED = 55, "not attempted, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, "the disk or log directory failed", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "no such log directory on this broker"
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed"
    UNKNOWN_PRODUCER_ID = 59, "the broker does not know this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "a reassignment of the partition is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "delegation tokens are not enabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the principal neither owns nor may renew the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "delegation tokens cannot be managed over this kind of connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "the principal type is not supported"
    NON_EMPTY_GROUP = 68, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "no such fetch session", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session epoch is not the expected one", RETRIABLE
    LISTENER_NOT_FOUND = 72, "the leader has no listener of the name on which this request arrived", RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "deleting topics is disabled"
    FENCED_LEADER_EPOCH = 74, "the leader epoch is older than the broker's", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch is newer than the broker's", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "the client cannot read the partition's compression"
    STALE_BROKER_EPOCH = 77, "the broker epoch is not the current one"
    OFFSET_NOT_AVAILABLE = 78, "the new leader's high watermark is not known yet", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "join again with the member id in this response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "the group is full"
    FENCED_INSTANCE_ID = 82, "another member uses this group instance id now"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "none of the eligible leaders is available", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "the partition's leader need not change", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "no reassignment is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "the group is subscribed to the topic, so its offsets stay"
    INVALID_RECORD = 87, "a record failed validation"
    UNSTABLE_OFFSET_COMMIT = 88, "offsets of an open transaction are pending", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "the quota is exhausted: retry after the throttle time", RETRIABLE
    PRODUCER_FENCED = 90, "a newer producer uses this transactional id now"
    RESOURCE_NOT_FOUND = 91, "no such resource"
    DUPLICATE_RESOURCE = 92, "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "sender or receiver is not one of the voters"
    INVALID_UPDATE_VERSION = 95, "the update version is invalid"
    FEATURE_UPDATE_FAILED = 96, "the feature could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "the forwarded principal could not be read"
    SNAPSHOT_NOT_FOUND = 98, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "this server has no topic of that id", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "this broker id is in use by another process"
    BROKER_ID_NOT_REGISTERED = 102, "this broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, "the topic id differs from the log's", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "the cluster id differs from the server's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes requests with and without topic ids", RETRIABLE
    INELIGIBLE_REPLICA = 107, "the proposed ISR has a replica that may not join it"
    NEW_LEADER_ELECTED = 108, "the change was made, but another leader has been elected"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset is only in tiered storage"
    FENCED_MEMBER_EPOCH = 110, "the member epoch was fenced: give up all partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, "the instance id is still held by another member"
    UNSUPPORTED_ASSIGNOR = 112, "the group does not know this assignor or version of it"
    STALE_MEMBER_EPOCH = 113, "the member epoch is stale: retry after the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, "this kind of endpoint does not serve the request"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "the kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the telemetry subscription is unknown or outdated"
    TELEMETRY_TOO_LARGE = 118, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, "the registration is invalid"
    TRANSACTION_ABORTABLE = 120, "the transaction failed: abort it, and the transactional id can go on"
    INVALID_RECORD_STATE = 121, "the record is not in a state that allows the acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, "no such share session", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session epoch is not the expected one", RETRIABLE
    FENCED_STATE_EPOCH = 124, "the state epoch does not match"
    INVALID_VOTER_KEY = 125, "the voter key differs from the replica's own"
    DUPLICATE_VOTER = 126, "this node is a voter already"
    VOTER_NOT_FOUND = 127, "this node is not a voter"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, "the client's view of the cluster is stale: bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, "the topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the topology epoch is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, "the topology epoch is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, "the limit of share sessions is reached", RETRIABLE
    GROUP_DELETION_FAILED = 134, "the group could not be deleted: see the message of its result"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, "the topology description could not be processed: see the message"
    CONTROLLER_ID_NOT_REGISTERED = 136, "this controller id is not registered"


#: A message that names all that is wrong with a request may be longer than a string of the protocol; it is cut there.
MESSAGE_LENGTH_MAX = 8_000


class KafkaError(Exception):
    """An error with an error code of the protocol; the peer receives `code` and `message`."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        text = message or code.message
        if len(text) > MESSAGE_LENGTH_MAX:
            text = f"{text[:MESSAGE_LENGTH_MAX]}..."
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.message = text

    @property
    def own_words(self) -> str | None:
        """The custom message; None if it has only the code's, as in Kafka: clients have a text for each code."""
        return None if self.message == self.code.message else self.message

    def __reduce__(self) -> tuple[object, ...]:  # so that it can be pickled by another process
        return type(self), (self.code, self.message)


class ProtocolError(Exception):
    """Bytes cannot be decoded, or an object cannot be encoded."""


class MalformedMessage(ProtocolError):
    """The bytes violate the protocol. A connection on which they arrived must be closed."""


class UnsupportedVersion(ProtocolError):
    """The version does not exist, or it lacks a field for a value that must not be dropped."""
