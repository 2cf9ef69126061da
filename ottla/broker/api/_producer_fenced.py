"""The handlers of transaction APIs share this: older clients get INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED.

Errors:
    INVALID_PRODUCER_EPOCH  in place of PRODUCER_FENCED, to a client from before it
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode


def as_known(error: int, api_version: int, producer_fenced_since: int) -> int:
    """PRODUCER_FENCED is INVALID_PRODUCER_EPOCH to clients from before KIP-588."""
    if error == ErrorCode.PRODUCER_FENCED and api_version < producer_fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
