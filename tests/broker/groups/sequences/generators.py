"""The generators of sequences, one for each kind."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.broker.groups.sequences.commits import commits_sequence, mixed_sequence, revocations_sequence
from tests.broker.groups.sequences.consumer import consumer_sequence
from tests.broker.groups.sequences.share import share_sequence
from tests.broker.groups.sequences.step import Sequence
from tests.broker.groups.sequences.streams import streams_sequence

GENERATORS: dict[str, Callable[[Random], Sequence]] = {
    "consumer": consumer_sequence,
    "share": share_sequence,
    "streams": streams_sequence,
    "commits": commits_sequence,
    "revocations": revocations_sequence,
    "mixed": mixed_sequence,
}
