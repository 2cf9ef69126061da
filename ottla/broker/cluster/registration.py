"""The registration of a broker, and the errors after which it stops registering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.controller.metadata.brokers import RegisteredEndpoint
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import supported_levels
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature, Listener


class RegistrationRejected(Exception):
    """The controller rejected the registration; the text has the reason and a remedy."""


class NoLogDirectory(RegistrationRejected):
    """Every log directory of this broker has failed."""


#: Permanent errors of a registration.
FATAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the cluster has another cluster id: this node's log directories belong to a"
    " different cluster (see meta.properties); point it to its own cluster or to empty directories",
    ErrorCode.INVALID_REGISTRATION: "the controller refused the registration: a log directory of this node is registered"
    " by another broker, or copied from one; give this node directories of its own",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has feature levels that this release does not know; upgrade this node",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this node may not act as a broker (ClusterAction)",
}
DUPLICATE_ID = (
    "another live broker has the same node id; give this node an id of its own, or wait until the other one is fenced"
)
NO_DIRECTORY_LEFT = (
    "all of its log directories have failed; see the errors above, repair or replace the disks, and start it again"
)
REPLACED = (
    "another process has taken over this node's id while this one was silent; only one may run: stop the other, or give"
    " one of them an id and log directories of its own"
)


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The fields of the registration that do not change while the process runs."""

    node_id: int
    cluster_id: str
    endpoints: Sequence[RegisteredEndpoint]
    directories: Sequence[bytes]
    rack: str | None = None
    #: From the clean-shutdown mark; -1 if there was none: the controller then removes the broker from all ISRs and ELRs.
    previous_broker_epoch: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=supported_levels)


def registration_request(
    identity: BrokerIdentity, incarnation_id: bytes, offline_directories: Iterable[bytes], broker_epoch: int
) -> BrokerRegistrationRequest:
    """The request of a registration; `broker_epoch` is that of this process's registration before, or -1."""
    return BrokerRegistrationRequest(
        broker_id=identity.node_id,
        cluster_id=identity.cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in identity.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in identity.features.items()
        ],
        rack=identity.rack,
        log_dirs=sorted(set(identity.directories) - set(offline_directories)),
        previous_broker_epoch=identity.previous_broker_epoch if broker_epoch < 0 else -1,
    )
