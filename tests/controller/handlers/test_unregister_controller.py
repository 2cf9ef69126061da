"""UnregisterController over a real connection. What it decides is in tests/controller/decisions/test_brokers.py."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest
from tests.controller.handlers.test_handlers import connected


async def test_at_kafka_4_3s_default_metadata_version_no_controller_is_forgotten(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, channel):
        response = await channel.request(UnregisterControllerRequest(controller_id=1))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert response.error_message == "The current MetadataVersion is too old to support unregistering controllers."
