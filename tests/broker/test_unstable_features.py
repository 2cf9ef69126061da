"""The metadata of Kafka 4.4 on a node that enables it: UnregisterController (KIP-1312) gets past the metadata's version."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import METADATA_VERSION, METADATA_VERSION_UNSTABLE
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.conftest import eventually, start_node, stop_node
from tests.broker.wire import Wire

UPGRADE = 1


def finalized(wire: Wire) -> int:
    answer = wire.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    return next(each.max_version_level for each in answer.finalized_features if each.name == METADATA_VERSION)


def unregister(wire: Wire) -> ErrorCode:
    return ErrorCode(wire.request(UnregisterControllerRequest(controller_id=9)).error_code)


def test_a_node_that_enables_it_goes_to_the_metadata_of_the_next_release() -> None:
    node = start_node(unstable_feature_versions_enable="true")
    with node.wire() as wire:
        assert finalized(wire) == 30
        assert unregister(wire) == ErrorCode.UNSUPPORTED_VERSION
        update = FeatureUpdateKey(METADATA_VERSION, METADATA_VERSION_UNSTABLE, upgrade_type=UPGRADE)
        answer = wire.request(UpdateFeaturesRequest(feature_updates=[update]))
        assert not answer.error_code, answer
        eventually(lambda: finalized(wire) == METADATA_VERSION_UNSTABLE, "the metadata to arrive")
        assert unregister(wire) == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    assert stop_node(node) == 0
