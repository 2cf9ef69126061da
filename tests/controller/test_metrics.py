"""The metrics of a controller about elections, brokers and topics."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.controller.decisions.brokers import fence_records, unfence_records
from ottla.controller.decisions.elections import elect_unclean_leaders
from ottla.controller.metadata.image import MetadataDelta
from ottla.controller.metrics import CONTROLLER, TOPICS_A_TURN, ControllerMetrics
from ottla.protocol.internal_topics.metadata_records import BrokerRegistrationChangeRecord
from tests.controller.harness import DecisionHarness


class Scraped:
    """A cluster whose changes are published to the metrics of its controller."""

    def __init__(self, *, elr: bool = False) -> None:
        self.cluster = DecisionHarness(brokers=3, elr=elr)
        self.controller = SimpleNamespace(
            is_active=True, state=self.cluster.state, loader=SimpleNamespace(image=self.cluster.image)
        )
        self.metrics = ControllerMetrics(self.controller)

    def publish(self, records: list[object]) -> None:
        delta = MetadataDelta(self.cluster.image)
        for record in records:
            delta.replay(record)
        self.metrics.on_metadata_update(delta, delta.apply(self.cluster.offset + len(records), 1))
        self.cluster.replay(records)

    def value(self, name: str) -> float:
        samples = [
            each for family in self.metrics() if family.name.removesuffix("_total") == name for each in family.samples
        ]
        (found,) = [sample.value for sample in samples]
        return found


def test_elections_are_counted_and_unclean_ones_apart() -> None:
    scraped = Scraped()
    scraped.cluster.topic("safe", "1 2 3")
    scraped.cluster.topic("careless", "1 2", isr="1", unclean_leader_election_enable=True)
    stats = "kafka_controller_controllerstats"
    scraped.publish(fence_records(scraped.cluster.state, 1))
    elected = scraped.value(f"{stats}_leaderelections")
    assert elected >= 1
    scraped.publish(elect_unclean_leaders(scraped.cluster.state).records)
    assert scraped.cluster.show("careless").endswith("recovering")
    assert scraped.value(f"{stats}_uncleanleaderelections") == 1
    scraped.controller.is_active = False
    scraped.publish(fence_records(scraped.cluster.state, 2))
    assert scraped.value(f"{stats}_uncleanleaderelections") == 1, "a standby counts nothing"


def test_the_election_of_an_eligible_leader_replica_is_counted_as_such() -> None:
    scraped = Scraped(elr=True)
    scraped.cluster.topic("orders", "2")
    name = "kafka_controller_controllerstats_electionfromeligibleleaderreplicas"
    scraped.publish(fence_records(scraped.cluster.state, 2))
    assert scraped.cluster.show("orders") == "replicas 2 isr - elr 2 last 2 no leader epoch 1"
    assert scraped.value(name) == 0
    scraped.publish(unfence_records(scraped.cluster.state, 2, scraped.cluster.epoch(2)))
    assert scraped.cluster.show("orders") == "replicas 2 isr 2 leader 2 epoch 2"
    assert scraped.value(name) == 1
    assert scraped.value("kafka_controller_controllerstats_uncleanleaderelections") == 0


def test_each_broker_has_the_number_of_its_registrations_state() -> None:
    scraped = Scraped()
    scraped.cluster.fence(1)
    scraped.cluster.replay([BrokerRegistrationChangeRecord(2, scraped.cluster.epoch(2), in_controlled_shutdown=1)])
    (states,) = [family for family in scraped.metrics() if family.name == f"{CONTROLLER}_brokerregistrationstate"]
    assert {sample.labels["broker"]: sample.value for sample in states.samples} == {"1": 10, "2": 20, "3": 30}


def test_partitions_without_leader_and_fenced_brokers_are_reported_by_each_controller() -> None:
    scraped = Scraped()
    scraped.cluster.topic("orders", "1", partitions=2)
    scraped.cluster.topic("others", "2 3")
    scraped.cluster.fence(1)
    expected = {
        "activecontrollercount": 1,
        "offlinepartitionscount": 2,
        "globaltopiccount": 2,
        "globalpartitioncount": 3,
        "activebrokercount": 2,
        "fencedbrokercount": 1,
        "controlledshutdownbrokercount": 0,
        "metadataerrorcount": 0,
    }
    assert {name: scraped.value(f"{CONTROLLER}_{name}") for name in expected} == expected
    scraped.controller.is_active = False
    expected["activecontrollercount"] = 0
    scraped.controller.loader.image = scraped.cluster.image
    for _ in range(2):  # the second scrape counts only what has changed
        assert {name: scraped.value(f"{CONTROLLER}_{name}") for name in expected} == expected
    scraped.cluster.topic("more", "1", partitions=3)
    scraped.controller.loader.image = scraped.cluster.image
    assert scraped.value(f"{CONTROLLER}_globalpartitioncount") == 6
    names = {family.name for family in scraped.metrics()}
    assert "kafka_brokers" not in names, "one controller reports the names of kafka_exporter"


def test_a_scrape_of_a_standby_can_end_its_turn_after_a_hundred_topics() -> None:
    scraped = Scraped()
    for number in range(TOPICS_A_TURN + 1):
        scraped.cluster.topic(f"t{number}", "1")
    scraped.controller = SimpleNamespace(is_active=False, loader=SimpleNamespace(image=scraped.cluster.image))
    scraped.metrics = ControllerMetrics(scraped.controller)
    name = f"{CONTROLLER}_offlinepartitionscount"
    families = [family for family in scraped.metrics() if family.name == name]
    assert [len(family.samples) for family in families] == [0, 0, 1]
