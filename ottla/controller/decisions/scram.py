"""AlterUserScramCredentials (KIP-554): the client sends the salted password; the log has the two keys derived from it."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Outcome, check_records_max
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.server.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS, keys_of

MV_SCRAM = 11
# mechanism -> hash
DIGESTS = {NUMBERS[name]: digest for name, digest in HASHES.items()}

Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(
    state: ControlState, request: AlterUserScramCredentialsRequest
) -> Outcome[AlterUserScramCredentialsResponse]:
    """Alter credentials. If a request names a user twice, both alterations are rejected."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    named = Counter(change.name for change in changes)
    records: list[MetadataRecord] = []
    results: dict[str, KafkaError | None] = {}
    for change in changes:
        if change.name in results:
            continue
        try:
            if named[change.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            records.append(_record(state, change))
            results[change.name] = None
        except KafkaError as error:
            results[change.name] = error
    check_records_max(len(records))
    response = AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for user, error in results.items()
        ]
    )
    return Outcome(records, response)


def _record(state: ControlState, change: Change) -> MetadataRecord:
    if state.image.features.metadata_version < MV_SCRAM:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in DIGESTS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if not isinstance(change, ScramCredentialUpsertion):
        if state.image.scram.credential(change.mechanism, change.name) is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    keys = keys_of(DIGESTS[change.mechanism], change.salted_password)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=keys.stored,
        server_key=keys.server,
        iterations=change.iterations,
    )
