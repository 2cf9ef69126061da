"""The faults of a node, as data. The test's process sends all of it at each change, and when the node starts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RequestFault:
    """A fault for clients' requests of one API: an error in place of the response, a delay of it, or both."""

    api_key: int
    #: Kafka's error code; None leaves the response as it is.
    error: int | None
    #: Whether the request is executed, so that only its response is the error.
    served: bool
    delay_ms: int
    #: A folder with a file for each request that still gets the fault, shared by all nodes; None: all requests get it.
    tokens: str | None

    def strikes(self) -> bool:
        """Return whether the next request gets the fault. It takes a token: only one process succeeds in unlinking a file."""
        if self.tokens is None:
            return True
        try:
            names = os.listdir(self.tokens)
        except FileNotFoundError:  # the fault was removed
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
    #: Each flush to the disk takes this much longer.
    slow_disk_ms: int = 0
    requests: tuple[RequestFault, ...] = ()
    #: API key -> the lowest and the highest version that is offered to clients.
    versions: tuple[tuple[int, int, int], ...] = ()

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decoded(data: bytes) -> NodeFaults:
    row = json.loads(data)
    row["requests"] = tuple(RequestFault(**each) for each in row["requests"])
    row["versions"] = tuple((key, low, high) for key, low, high in row["versions"])
    return NodeFaults(**row)
