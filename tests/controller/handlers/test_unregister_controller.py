"""UnregisterController over a real connection. tests/controller/decisions/test_brokers.py has the decision itself."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest
from tests.controller.handlers.test_handlers import connected


async def test_a_voter_is_not_forgotten(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, channel):
        response = await channel.request(UnregisterControllerRequest(controller_id=1))
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.error_message == "Controller 1 is still a voter of the quorum."
