"""The steps of a mixed cluster by their names: each is something that has to work while nodes of Apache Kafka and Ottla are in
one cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import kdc
from tests.compat.mixed import adoption, brokers, chaos, cuts, handover, operations, quorum, rolling, secured
from tests.compat.mixed.nodes import KAFKA, KAFKA_OLDEST, OTTLA

STEPS: dict[str, Callable[[Path], None]] = {
    "brokers-at-ottla": partial(brokers.lose_nothing, controller_kind=OTTLA),
    "brokers-at-kafka": partial(brokers.lose_nothing, controller_kind=KAFKA),
    "brokers-at-oldest": partial(brokers.lose_nothing, controller_kind=KAFKA_OLDEST),
    "isr-after-min-isr-at-ottla": partial(brokers.join_again_after_min_isr, controller_kind=OTTLA),
    "isr-after-min-isr-at-kafka": partial(brokers.join_again_after_min_isr, controller_kind=KAFKA),
    "leader-after-min-isr-of-ottla": partial(brokers.lead_again_after_min_isr, broker_kind=OTTLA),
    "leader-after-min-isr-of-kafka": partial(brokers.lead_again_after_min_isr, broker_kind=KAFKA),
    "catch-up": brokers.catch_up,
    "metadata-version-at-ottla": partial(brokers.raise_metadata_version, controller_kind=OTTLA),
    "metadata-version-at-kafka": partial(brokers.raise_metadata_version, controller_kind=KAFKA),
    "quorum-kafka-kafka-ottla": partial(quorum.survive, kinds=(KAFKA, KAFKA, OTTLA)),
    "quorum-kafka-ottla-ottla": partial(quorum.survive, kinds=(KAFKA, OTTLA, OTTLA)),
    "quorum-oldest-oldest-ottla": partial(quorum.survive, kinds=(KAFKA_OLDEST, KAFKA_OLDEST, OTTLA)),
    "voters-from-ottla": partial(quorum.replace_voters, first_kind=OTTLA),
    "voters-from-kafka": partial(quorum.replace_voters, first_kind=KAFKA),
    "kraft-version-by-ottla": partial(quorum.raise_kraft_version, leading=OTTLA),
    "kraft-version-by-kafka": partial(quorum.raise_kraft_version, leading=KAFKA),
    "handover-stop-static": partial(handover.go_on, how="stop", quorum="static"),
    "handover-kill-static": partial(handover.go_on, how="kill", quorum="static"),
    "handover-stop-standalone": partial(handover.go_on, how="stop", quorum="standalone"),
    "handover-kill-standalone": partial(handover.go_on, how="kill", quorum="standalone"),
    "snapshots": handover.agree_about_snapshots,
    "tools": handover.read_by_kafkas_tools,
    **adoption.STEPS,
    **secured.STEPS,
    **operations.STEPS,
    **rolling.STEPS,
    **chaos.STEPS,
    **cuts.STEPS,
}
#: The needs of a step beyond a JDK and Maven: each function returns the reason why the step cannot run here, or None.
NEEDS: dict[str, Callable[[], str | None]] = {"network-cuts": cuts.missing, "secured-gssapi": kdc.missing}
