"""Subscriptions as they come with the metadata."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry.client_telemetry import Telemetry
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.internal_topics.metadata_records import ConfigRecord
from tests.manual_clock import ManualClock


def test_a_pattern_that_is_not_valid_here_costs_its_subscription_and_no_metadata(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another controller may have written the pattern: Java has look-ahead, RE2 does not."""
    telemetry, image = Telemetry(ManualClock()), MetadataImage()
    for match in ("client_id=a.*", "client_id=(?=a).*"):
        delta = MetadataDelta(image)
        values = {"metrics": "org.a", "match": match}
        for name, value in values.items():
            record = ConfigRecord(
                resource_type=int(ResourceType.CLIENT_METRICS), resource_name="s", name=name, value=value
            )
            delta.replay(record)
        image = delta.apply(1, 1)
        telemetry.on_metadata_update(delta, image)
        wanted = telemetry.instances.seen(b"i" * 16, {"client_id": "a1"}, 0).wanted
        assert wanted.metrics == (("org.a",) if match == "client_id=a.*" else ())
    assert "subscription s has no effect" in caplog.text
