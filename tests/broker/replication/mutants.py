"""Known mistakes of replication and fetching, each put into a copy of the code, and the one test that must notice it.

    python -m tests.broker.replication.mutants            all
    python -m tests.broker.replication.mutants SUBSTRING  those whose description has it

They are changes of the text: what tests/sim/mutants.py does by replacing attributes cannot reach the middle of a function. The tests
named here are small, so that the whole table takes half a minute (test_mutants.py); the simulator's mutants need seeds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
COPIED = ("ottla", "tests")

PARTITION, HANDLER = "ottla/broker/replication/partition.py", "ottla/broker/fetch/handler.py"
ISR, READER = "ottla/broker/replication/isr.py", "ottla/broker/fetch/reader.py"
SESSION, FETCHER = "ottla/broker/fetch/session.py", "ottla/broker/replication/fetcher.py"
FOLLOWER, TRUNCATION = "ottla/broker/replication/follower_session.py", "ottla/broker/replication/truncation.py"
UNITS = "tests/broker/replication/"

#: The command runs without other plugins and without rewritten assertions, neither of which is needed: 0.4 s of CPU instead of
#: 1.6 s.
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-x",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_asyncio.plugin",
)
SECONDS_MAX = 100


class Mutant(NamedTuple):
    text: str
    path: str
    old: str
    new: str
    noticed_by: str


MUTANTS = (
    Mutant(
        "a truncation of an older leader epoch ends the wait of the present one",
        FOLLOWER,
        "        if followed is None or followed.wait is not wait:\n",
        "        if followed is None:\n",
        UNITS + "test_stale_truncations.py"
        "::test_a_truncation_of_an_older_leader_epoch_does_not_end_the_wait_for_the_present_one[same_leader_again]",
    ),
    Mutant(
        "a truncation is carried out in whatever log there is after its wait",
        TRUNCATION,
        "        return log is self.log and not partition.offline and Basis.of(partition, log) == self\n",
        "        return log is self.log and not partition.is_leader and partition.leader_epoch == self.leader_epoch\n",
        UNITS
        + "test_stale_truncations.py::test_a_truncation_is_dropped_if_what_it_was_decided_on_has_changed[append_one]",
    ),
    Mutant(
        "a follower cuts what it has acknowledged to the leader of this epoch",
        PARTITION,
        "        self._acknowledged_end = log.log_end_offset\n",
        "",
        UNITS + "test_stale_truncations.py"
        "::test_an_acknowledged_offset_of_this_leader_epoch_is_never_cut_whatever_asks_for_it",
    ),
    Mutant(
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND is never given",
        PARTITION,
        "        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.isr.is_under_min else ErrorCode.NONE\n",
        "        return ErrorCode.NONE\n",
        UNITS
        + "test_partition.py::test_an_isr_that_shrank_below_the_minimum_before_the_answer_to_a_committed_append_is_an_error",
    ),
    Mutant(
        "a closed session stays on the watch lists",
        SESSION,
        "        partition.watch(None)\n        partition.session = None\n",
        "        partition.session = None\n",
        "tests/sim/test_fetch_regressions.py::test_a_session_that_is_closed_leaves_no_watch_behind",
    ),
    Mutant(
        "the one-time session of a client that has gone is not closed",
        HANDLER,
        "        if not session.id:\n            session.close()\n",
        "",
        "tests/sim/test_fetch_regressions.py"
        "::test_a_client_that_goes_while_it_waits_leaves_no_watch_behind_but_those_of_its_session",
    ),
    Mutant(
        "a second request of a session does not answer the first",
        HANDLER,
        "        session.waiting.expire()\n",
        "        pass\n",
        "tests/broker/fetch/test_delayed.py::test_a_second_request_of_a_session_ends_the_wait_of_the_first",
    ),
    Mutant(
        "a waiting fetch watches only what had no data",
        HANDLER,
        "        for wanted, partition, _, _, _ in rows:\n            wanted.watch(",
        "        for wanted, partition, _, records, _ in rows:\n            if not records: wanted.watch(",
        "tests/broker/fetch/test_delayed.py::test_a_fetch_that_found_too_little_is_woken_by_more_in_the_same_partition",
    ),
    Mutant(
        "a divergence below the log start is no error",
        READER,
        "if epoch < 0 or end_offset < 0 or request.fetch_offset < log.log_start_offset:",
        "if epoch < 0 or end_offset < 0:",
        "tests/broker/fetch/test_reader.py"
        "::test_a_follower_that_diverges_below_the_log_start_is_out_of_range_and_not_sent_back_to_deleted_offsets",
    ),
    Mutant(
        "records that were asked for in an older leader epoch are appended",
        FETCHER,
        "            or partition.leader_epoch != sent.leader_epoch\n",
        "",
        UNITS + "test_fetcher_answers.py::test_records_that_were_asked_for_in_an_older_leader_epoch_are_not_appended",
    ),
    Mutant(
        "an answer of another session is taken for one of the own",
        "ottla/broker/replication/follower_session.py",
        "        if self.is_open:\n            self.reset()\n            return\n",
        "        if self.is_open:\n            return\n",
        UNITS
        + "test_fetcher_answers.py::test_an_answer_of_another_session_than_the_one_asked_makes_the_next_request_full",
    ),
    Mutant(
        "an answer to AlterPartition of an older leader epoch counts",
        PARTITION,
        "        if leader_epoch == self.leader_epoch and partition_epoch >= self.isr.partition_epoch",
        "        if partition_epoch >= self.isr.partition_epoch",
        UNITS + "test_isr_changes.py::test_an_answer_to_a_proposal_of_an_older_leader_epoch_changes_nothing",
    ),
    Mutant(
        "a throttled follower in the ISR is held back",
        READER,
        "throttle is not None and self.replica_id not in partition.isr.members and throttle.pause_ms() > 0",
        "throttle is not None and throttle.pause_ms() > 0",
        "tests/broker/fetch/test_reader.py::test_a_throttle_holds_back_only_replicas_outside_of_the_isr",
    ),
    Mutant(
        "an unknown session gives the connection to the leader up",
        FETCHER,
        "        if code not in SESSION_ERRORS:\n",
        "        if True:\n",
        UNITS
        + "test_fetcher_answers.py::test_a_session_that_the_leader_does_not_have_is_opened_again_on_the_same_connection",
    ),
    Mutant(
        "a follower keeps its log above the leader's end",
        "ottla/broker/replication/truncation.py",
        "    if end < own_log.log_end_offset:\n",
        "    if False:\n",
        UNITS + "test_fetcher_answers.py"
        "::test_a_log_that_is_out_of_the_leaders_range_is_truncated_to_its_end_or_restarted_at_its_start",
    ),
    Mutant(
        "a consumer is sent to a replica outside of the ISR",
        READER,
        "        if follower.broker_id in partition.isr.members\n        and follower.log_start_offset",
        "        if follower.log_start_offset",
        "tests/broker/fetch/test_reader.py::test_a_consumer_is_sent_to_a_replica_of_its_rack_only_while_that_is_in_the_isr",
    ),
    Mutant(
        "metadata of an equal partition epoch forgets the proposal that was made since",
        ISR,
        "        if not stands:\n",
        "        if True:\n",
        UNITS + "test_isr_changes.py"
        "::test_a_proposal_made_on_the_controllers_answer_stands_when_the_metadata_of_that_answer_comes_later",
    ),
    Mutant(
        "metadata of an equal partition epoch keeps a proposal of a replica that is not assigned any more",
        ISR,
        "            and self.proposed.issubset(replicas)",
        "            and True",
        UNITS + "test_isr_changes.py"
        "::test_a_proposal_that_the_controller_cannot_make_any_more_is_dropped_by_metadata_of_its_partition_epoch",
    ),
    Mutant(
        "the append that raises the watermark calls back from inside",
        PARTITION,
        "            if within_append:\n",
        "            if False:\n",
        UNITS
        + "test_partition.py::test_a_watermark_that_an_append_raises_calls_back_after_the_append_and_not_inside_it",
    ),
    Mutant(
        "callbacks are not isolated from each other",
        "ottla/server/tasks.py",
        '        log.exception("A callback failed: %r%r", callback, arguments)\n',
        "        raise\n",
        UNITS + "test_partition.py::test_one_waiter_that_fails_keeps_no_other_of_its_turn_from_being_woken",
    ),
    Mutant(
        "closing a session leaves its waiting request without anything that wakes it",
        "ottla/broker/fetch/session_cache.py",
        "                isolated(session.waiting.expire)\n            session.close()\n",
        "                pass\n            session.close()\n",
        "tests/sim/test_fetch_regressions.py"
        "::test_a_session_that_is_closed_in_the_turn_of_an_append_costs_no_other_fetch_its_wake_up",
    ),
    Mutant(
        "the name of a topic id that was unknown is never looked up again",
        HANDLER,
        "    _resolve_names(broker, session)\n",
        "",
        "tests/sim/test_fetch_regressions.py"
        "::test_a_session_that_named_a_topic_id_before_the_broker_knew_it_may_not_read_it_unasked",
    ),
    Mutant(
        "a refusal of AlterPartition that may pass is asked again without a pause",
        PARTITION,
        "        return error not in OVERTAKEN\n",
        "        if error not in OVERTAKEN and self.isr._proposals is not None:\n"
        "            self.isr._proposals.submit(self)\n        return False\n",
        UNITS + "test_isr_changes.py::test_only_a_refusal_that_may_pass_is_asked_again_and_not_at_once",
    ),
    Mutant(
        "a fetch whose wait ends in a bug is never answered",
        HANDLER,
        "                self._fail()\n",
        "                pass\n",
        "tests/sim/test_fetch_regressions.py::test_a_fetch_whose_wait_ends_in_a_bug_of_the_broker_is_answered",
    ),
    Mutant(
        "one failed connection attempt to a leader is the last",
        FETCHER,
        '            log.exception("Could not connect to broker %d", self.leader_id)\n            self._lost(error)\n',
        '            log.exception("Could not connect to broker %d", self.leader_id)\n',
        UNITS + "test_fetcher_answers.py::test_a_connection_attempt_that_fails_in_an_unexpected_way_is_not_the_last",
    ),
)


class Copy:
    """A copy of the code in which one mutant at a time lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        shutil.copy2(ROOT / "pyproject.toml", folder)

    def run(self, mutant: Mutant | None, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run the tests, with the mutant in place while they run."""
        path = self.folder / (MUTANTS[0] if mutant is None else mutant).path
        original = path.read_text()
        # Otherwise Python would use the mutant's compiled file: it compares only the seconds of the time, and the size.
        compiled = Path(cache_from_source(str(path)))
        compiled.unlink(missing_ok=True)
        if mutant is not None:
            assert original.count(mutant.old) == 1, f"{mutant.path} does not have the place of: {mutant.text}"
            path.write_text(original.replace(mutant.old, mutant.new))
        try:
            environment = os.environ | {"PYTHONPATH": str(self.folder)}
            return subprocess.run(
                [*PYTEST, *tests],
                cwd=self.folder,
                env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                timeout=SECONDS_MAX,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            path.write_text(original)
            compiled.unlink(missing_ok=True)


def main(words: list[str], mutants: Sequence[Mutant] = MUTANTS) -> int:
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "code")
        for mutant in mutants:
            if all(word in mutant.text for word in words):
                noticed = copy.run(mutant, [mutant.noticed_by]).returncode == 1
                unnoticed += not noticed
                print("noticed " if noticed else "UNNOTICED", mutant.text, flush=True)
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
