"""Memory agrees with the log and outcomes stay, whatever producers do and whenever the coordinator moves (invariant 35)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.transactions.transaction import COMPLETION, PREPARED, TransactionState, from_record
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.harness import PARKED, TP, TransactionalProducer, TransactionCoordinatorHarness
from tests.broker.transactions.replayed import compacted, replayed
from tests.effort import examples

PARTITIONS = ("t-0", "t-1", "u-0")
PRODUCERS = ("a", "b", "c")

actions = st.one_of(
    st.tuples(st.sampled_from(["init", "resume"]), st.sampled_from(PRODUCERS), st.just("")),
    st.tuples(st.sampled_from(["add", "add v0"]), st.sampled_from(PRODUCERS), st.sampled_from(PARTITIONS)),
    st.tuples(
        st.sampled_from(["commit", "abort", "commit v0", "abort v0", "commit again", "abort again"]),
        st.sampled_from(PRODUCERS),
        st.just(""),
    ),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from(["1", "60", "5000", "20000", "150000"])),
    st.tuples(st.sampled_from(["later", "fail", "take"]), st.just(""), st.sampled_from(PARTITIONS)),
    st.tuples(
        st.sampled_from(["restart", "hold", "release", "refuse", "accept", "ids later", "ids"]),
        st.just(""),
        st.just(""),
    ),
)


class Story:
    """A history of three producers: two share an id, the third has its own. The coordinator aborts after ten seconds."""

    def __init__(self, transaction_version: int) -> None:
        self.harness = TransactionCoordinatorHarness(
            transaction_version=transaction_version,
            transactional_id_expiration_ms=100_000,
            remove_expired_interval_ms=20_000,
            transaction_max_timeout_ms=900_000_000,
        )
        self.producers = {
            "a": TransactionalProducer(self.harness),
            "b": TransactionalProducer(self.harness),
            "c": TransactionalProducer(self.harness, "y"),
        }

    def play(self, action: str, name: str, detail: str) -> None:
        harness = self.harness
        producer = self.producers.get(name)
        match action.split():
            case ["init" | "resume" as verb]:
                assert producer is not None
                producer.init(timeout=10_000, resume=verb == "resume" and producer.producer_id >= 0)
            case ["add", *old]:
                assert producer is not None
                producer.add(detail, version=0 if old else 2)
            case ["commit" | "abort" as outcome, *how]:
                assert producer is not None
                producer.end(
                    outcome == "commit", version=0 if how == ["v0"] else 2, epoch=-1 if how == ["again"] else 0
                )
            case ["wait"]:
                harness.clock.advance(int(detail))
            case ["later"]:
                harness.marker_behaviour(detail, "later")
            case ["fail"]:
                harness.marker_behaviour(detail, "NOT_LEADER_OR_FOLLOWER")
            case ["take"]:
                harness.marker_behaviour(detail, "NONE")
            case ["ids", *later]:
                harness.producer_ids.hold = bool(later)
                waiting, harness.producer_ids.waiting = harness.producer_ids.waiting, []
                if not later:
                    for receive in waiting:
                        harness.producer_ids.take(receive)
            case ["restart"]:
                harness.restart()
            case ["hold"]:
                harness.log.hold = True
            case ["release"]:
                harness.log.hold = False
                harness.log.release(TP)
            case ["refuse"]:
                harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            case ["accept"]:
                harness.log.refuse = None

    def settle(self) -> None:
        """Let everything work again."""
        self.play("accept", "", "")
        self.play("release", "", "")
        self.play("ids", "", "")
        for partition in PARTITIONS:
            self.play("take", "", partition)
        self.harness.clock.advance(1_000)

    def check(self) -> None:
        records = self.harness.records()
        memory = self.harness.shard.transactions
        assert replayed(self.harness, records) == memory
        assert replayed(self.harness, compacted(records)) == memory

    def check_outcomes(self) -> None:
        """Check that each prepared transaction was completed as prepared, and that markers agree with the log."""
        last: dict[str, TransactionState] = {}
        committed: set[tuple[int, int]] = set()
        aborted: set[tuple[int, int]] = set()
        for _, key, value in self.harness.records():
            if value is None:
                last.pop(key.transactional_id, None)
                continue
            transaction = from_record(key, value)
            before = last.get(key.transactional_id)
            if before in PREPARED:
                assert transaction.state is COMPLETION[before]
            last[key.transactional_id] = transaction.state
            if transaction.state is TransactionState.PREPARE_COMMIT:
                committed.add((transaction.producer_id, transaction.producer_epoch))
            elif transaction.state is TransactionState.PREPARE_ABORT:
                aborted.add((transaction.producer_id, transaction.producer_epoch))
        assert not PREPARED & set(last.values()), "a transaction was left prepared"
        for _, producer_id, epoch, commit in self.harness.markers:
            assert (producer_id, epoch) in (committed if commit else aborted)


@settings(max_examples=examples(150))
@given(st.lists(actions, max_size=40), st.sampled_from([0, 2, 2]))
def test_memory_is_what_the_log_says_and_outcomes_stand(script: list[tuple[str, str, str]], version: int) -> None:
    story = Story(version)
    for action in script:
        story.play(*action)
        story.check()
    story.settle()
    story.check()
    story.check_outcomes()


def test_an_answer_that_waits_is_given_when_the_coordinator_goes() -> None:
    story = Story(2)
    story.play("init", "a", "")
    story.play("hold", "", "")
    assert story.producers["a"].add("t-0") == PARKED
    story.harness.printed.clear()
    story.harness.coordinator.close()
    assert story.harness.printed == ["then: NOT_COORDINATOR"]
