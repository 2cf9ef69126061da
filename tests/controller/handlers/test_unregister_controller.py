"""UnregisterController over a real connection."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest
from tests.controller.handlers.test_handlers import connected


async def test_a_controller_that_votes_or_is_not_registered_is_not_forgotten(tmp_path: Path) -> None:
    async with connected(tmp_path) as (node, channel):
        (voter,) = node.metadata.raft.core.voters.last.ids
        codes = [
            ErrorCode((await channel.request(UnregisterControllerRequest(controller_id=each))).error_code).name
            for each in (voter, 99)
        ]
        assert codes == ["INVALID_REQUEST", "CONTROLLER_ID_NOT_REGISTERED"]
