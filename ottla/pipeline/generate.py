"""A generator of clickstream-like events at a rate, some of them bad, doubled or late.

It writes down what it made: the truth file.

The generator does not judge events: the kind that it makes is the verdict that silver has to reach.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

from confluent_kafka import KafkaError, Message, Producer

from ottla.pipeline import topics, truth
from ottla.pipeline.config import Config
from ottla.pipeline.events import AVRO_FRAME, Event, Reason, to_avro, to_json
from ottla.pipeline.run import stopped_by_signals

PAGES = ("/", "/search", "/cart", "/checkout", "/account", "/help", *(f"/product/{number}" for number in range(14)))
#: Few enough users for some to come back within a session gap, and many enough for sessions to have gaps.
USERS = 500
#: A doubled event repeats one of the last few, so it is within any sensible watermark.
RECENT = 2_000
TICK_SECONDS = 0.05
FLUSH_SECONDS_MAX = 150
PRODUCER_SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "compression.type": "lz4",
    "delivery.timeout.ms": 120_000,
}


#: The maximum lateness of a late event, unless the configuration has a lower one.
LATE_BY_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Mix:
    """The percentage of events that are made wrong on purpose, and the largest lateness."""

    bad: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    late_by_ms: int = LATE_BY_MS_MAX


class Recipe:
    """Makes one record after another. All chance comes from its seed."""

    def __init__(self, mix: Mix, topic: str, config: Config, seed: int) -> None:
        self._mix, self._topic, self._rng = mix, topic, Random(seed)
        self._limits = config.pipeline
        self._recent: deque[Event] = deque(maxlen=RECENT)

    def next(self, now_ms: int) -> tuple[truth.Sent, bytes | None]:
        """Return the entry of the truth file and the value to send."""
        dice = self._rng.uniform(0, 100)
        mix = self._mix
        if dice < mix.bad:
            return self._bad(now_ms)
        if dice < mix.bad + mix.duplicates and self._recent:
            return self._sent("duplicate", self._rng.choice(self._recent))
        is_late = mix.bad + mix.duplicates <= dice < mix.bad + mix.duplicates + mix.late
        event = self._event(now_ms - (self._rng.randrange(1_000, mix.late_by_ms) if is_late else 0))
        self._recent.append(event)
        return self._sent("late" if is_late else "good", event)

    def _event(self, event_time_ms: int) -> Event:
        rng = self._rng
        page = PAGES[min(int(rng.expovariate(0.3)), len(PAGES) - 1)]
        return Event(
            str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            event_time_ms,
            f"user-{rng.randrange(USERS)}",
            page,
            rng.randrange(100, 60_000),
        )

    def _sent(self, kind: str, event: Event) -> tuple[truth.Sent, bytes | None]:
        encode: Callable[[Event], bytes] = self._rng.choice((to_json, lambda e: to_avro(e, 1), lambda e: to_avro(e, 2)))
        return truth.Sent(
            kind, event.event_id, event.event_time_ms, event.user, event.page, event.duration_ms, self._topic
        ), encode(event)

    def _bad(self, now_ms: int) -> tuple[truth.Sent, bytes | None]:
        reason = self._rng.choice(tuple(SPOILERS))
        event = self._event(now_ms)
        if reason is Reason.TOO_LATE:  # an hour later than allowed, so that no delay on the way changes the verdict
            event = event._replace(event_time_ms=now_ms - self._limits.max_lateness_ms - 3_600_000)
        elif reason is Reason.IN_THE_FUTURE:
            event = event._replace(event_time_ms=now_ms + self._limits.max_ahead_ms + 3_600_000)
        sent = self._sent(reason, event)[0]
        return sent, SPOILERS[reason](event)


def without(event: Event, name: str) -> bytes:
    return json.dumps({key: value for key, value in event._asdict().items() if key != name}).encode()


#: Functions that damage an event, by the reason for which it must then be rejected.
SPOILERS: dict[Reason, Callable[[Event], bytes | None]] = {
    Reason.EMPTY: lambda event: None,
    Reason.MALFORMED_JSON: lambda event: to_json(event)[:-7],
    Reason.MALFORMED_AVRO: lambda event: to_avro(event, 1)[:-9],
    Reason.UNKNOWN_SCHEMA: lambda event: AVRO_FRAME.pack(0, 9_999) + to_avro(event, 1)[AVRO_FRAME.size :],
    Reason.MISSING_FIELD: lambda event: without(event, "user"),
    Reason.WRONG_TYPE: lambda event: json.dumps({**event._asdict(), "duration_ms": "long"}).encode(),
    Reason.OUT_OF_RANGE: lambda event: to_json(event._replace(duration_ms=-1)),
    Reason.TOO_LATE: to_json,
    Reason.IN_THE_FUTURE: to_json,
}


def run(
    config: Config,
    *,
    rate: int,
    seconds: float,
    mix: Mix,
    truth_path: str,
    seed: int,
    show: Callable[[dict[str, Any]], None],
) -> Counter[str]:
    """Send for this long at this rate, or until Ctrl-C. Return how many of each kind were acknowledged.

    Whatever ends it, it waits for all acknowledgements: a truth file that lacks records of the topic is useless.
    """
    topics.ensure(config)
    recipe = Recipe(mix, config.kafka.events, config, seed)
    producer = Producer({**topics.client_settings(config), **PRODUCER_SETTINGS})
    counts: Counter[str] = Counter()
    Path(truth_path).parent.mkdir(parents=True, exist_ok=True)
    with open(truth_path, "a") as file, stopped_by_signals() as stop:
        begin = shown = time.monotonic()
        made, total = 0, max(int(rate * seconds), 1)
        while made < total and not stop.is_set():
            elapsed = time.monotonic() - begin
            for _ in range(min(int(elapsed * rate) + 1, total) - made):
                send(producer, recipe, file, counts)
                made += 1
            producer.poll(TICK_SECONDS)
            if time.monotonic() - shown >= 1:
                shown = time.monotonic()
                show({"sent": made, "acknowledged": counts.total(), "seconds": round(elapsed, 1)})
        left = producer.flush(FLUSH_SECONDS_MAX)
    show(
        {
            "sent": made,
            "acknowledged": counts.total(),
            "unacknowledged": left + counts["unacknowledged"],
            "truth": truth_path,
        }
    )
    return counts


def send(producer: Producer, recipe: Recipe, file: IO[str], counts: Counter[str]) -> None:
    now_ms = int(time.time() * 1000)
    sent, value = recipe.next(now_ms)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            counts[sent.kind] += 1
            truth.write(file, sent._replace(partition=message.partition(), offset=message.offset(), acknowledged=True))
        else:
            counts["unacknowledged"] += 1
            truth.write(file, sent)

    while True:
        try:
            headers = [("kind", sent.kind.encode()), ("producer", b"ottla-pipeline")]
            producer.produce(
                sent.topic, value, key=sent.user.encode(), timestamp=now_ms, headers=headers, on_delivery=delivered
            )
            return
        except BufferError:  # the cluster is slower than the rate: wait for room
            producer.poll(TICK_SECONDS)
