"""The core's notes in the node's log."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class Notes:
    """Writes the notes of a replica. Rejected requests are retried: a note is logged once, until another one follows."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._last = ""

    def say(self, note: str) -> None:
        if note != self._last:
            self._last = note
            level = logging.WARNING if note.startswith("REFUSED") else logging.INFO
            logger.log(level, "[raft %d] %s", self._node_id, note)
