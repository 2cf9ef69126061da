"""The faults of a node, as data. The test's process sends the whole of it with each change, and when the node starts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RequestFault:
    """A fault of a client's requests of one API: an error in place of the response, or a delay of it, or both."""

    api_key: int
    #: Kafka's error code; None leaves the response as it is.
    error: int | None
    #: Whether the request is served, so that only its response is the error.
    served: bool
    delay_ms: int
    #: A folder with a file for each request that is to be struck, shared by all nodes; None strikes all requests.
    tokens: str | None

    def strikes(self) -> bool:
        """Return whether the next request is struck. It takes a token: to unlink a file succeeds in one process only."""
        if self.tokens is None:
            return True
        try:
            names = os.listdir(self.tokens)
        except FileNotFoundError:  # the fault was taken back
            return False
        for name in names:
            try:
                os.unlink(os.path.join(self.tokens, name))
            except FileNotFoundError:
                continue
            return True
        return False


@dataclass(frozen=True)
class NodeFaults:
    """All faults of one node."""

    #: How far the session clock and the wall clock are ahead of the machine's.
    advanced_ms: int = 0
    #: How far the wall clock alone is wrong.
    skew_ms: int = 0
    disk_full: bool = False
    #: The time by which each flush to the disk takes longer.
    slow_disk_ms: int = 0
    requests: tuple[RequestFault, ...] = ()
    #: API key -> the lowest and the highest version that clients are offered.
    versions: tuple[tuple[int, int, int], ...] = ()

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decoded(data: bytes) -> NodeFaults:
    row = json.loads(data)
    row["requests"] = tuple(RequestFault(**each) for each in row["requests"])
    row["versions"] = tuple((key, low, high) for key, low, high in row["versions"])
    return NodeFaults(**row)
