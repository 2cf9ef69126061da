"""The name of a class has one meaning: a reader of `Peer` or `Source` need not look where it is imported from."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.rules.sources import sources

#: Names that two modules have, and why. Declared messages and records have Kafka's names and are not counted.
REASONS = {
    "CommittedBatch": "an interface that the user of the class declares",
    "Logins": "an interface that the user of the class declares",
    "MetadataLog": "an interface that the user of the class declares",
    "SnapshotReader": "an interface that the user of the class declares",
    "SnapshotWriter": "an interface that the user of the class declares",
    "CurrentAssignment": "each kind of group has its own, on one base",
    "Outcome": "records and the response to them, of the controller and of a coordinator",
    "ScheduledTasks": "of the controller and of the broker",
    "UnknownRecord": "an error of the metadata log and one of the coordinators' topics",
}
DECLARED = ("protocol/messages/", "protocol/internal_topics/")


def test_a_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for source in sources():
        if not source.path.startswith(DECLARED):
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(source.path)
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    wrong = {name: paths for name, paths in twice.items() if name not in REASONS}
    assert not wrong, f"give each of these classes the name of its own thing: {wrong}"
    stale = REASONS.keys() - twice.keys() - {"UnknownRecord"}
    assert not stale, f"these names stand for one class now, so their rows of REASONS go: {stale}"
