"""Error codes by the names of Kafka's exceptions, which its tools print."""

from __future__ import annotations

from ottla.client.errors import ClusterError
from ottla.client.failures import Failure
from ottla.protocol.errors import ErrorCode

PACKAGE = "org.apache.kafka.common.errors."
#: Exceptions that are not named after their error code. For the others, a FAILED at the end is left out and EXCEPTION is added.
IRREGULAR = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServer",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecord",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLarge",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopic",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExists",
    ErrorCode.INVALID_CONFIG: "InvalidConfiguration",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmpty",
    ErrorCode.FEATURE_UPDATE_FAILED: "FeatureUpdateFailed",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorage",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabled",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthentication",
}
#: Kafka's messages for errors that brokers send without one.
MESSAGES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.SECURITY_DISABLED: "Security features are disabled.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "Delegation Token is not found on server.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
        "authenticated channels."
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The transactionalId could not be found",
}


def reason(failure: Failure) -> str:
    """Return the broker's message, or else Kafka's message for the code."""
    if failure.code is None or failure.message is None:
        return failure.cause
    return message(failure.code) if failure.message == ErrorCode(failure.code).message else failure.message


def rejected(code: ErrorCode, message: str) -> ClusterError:
    """Return the error for a request that Kafka's tool itself rejects, with the exception of its admin client."""
    return ClusterError(message, code=code, message=message)


def message(code: int) -> str:
    return MESSAGES.get(ErrorCode(code), ErrorCode(code).message)


def exception_name(code: int) -> str:
    """Return the name of Kafka's exception, with its package."""
    name = IRREGULAR.get(ErrorCode(code))
    if name is None:
        name = "".join(word.capitalize() for word in ErrorCode(code).name.removesuffix("_FAILED").split("_"))
    return f"{PACKAGE}{name}Exception"


def exception(failure: Failure) -> str:
    """Return the failure as Java prints an exception: its class and its message."""
    if failure.code is None:
        return f"{PACKAGE}TimeoutException: {failure.cause}"
    return f"{exception_name(failure.code)}: {reason(failure)}"


def execution_exception(failure: Failure) -> str:
    """Return the failure as the admin client's futures give it: the first line of a stack trace."""
    return f"java.util.concurrent.ExecutionException: {exception(failure)}"
