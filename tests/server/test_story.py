"""Stories: what they keep, in how many bytes, and when something is formatted."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from ottla.server.story import (
    ENTRIES_MAX,
    ENTRY_BYTES,
    FACT_LENGTH_MAX,
    GROWING_MAX,
    PRINT_EVERY_MS,
    STORIES_BYTES_MAX,
    STORY_BYTES,
    Asker,
    Stories,
    because,
)
from tests.manual_clock import ManualClock

log = logging.getLogger("stories")


class StoriesHarness:
    def __init__(self, bytes_max: int = STORIES_BYTES_MAX) -> None:
        self.clock = ManualClock()
        self.stories: Stories[str] = Stories("group", self.clock.wall_ms, bytes_max)

    def texts(self, key: str = "g") -> list[str]:
        return [line.text for line in self.stories.of(key)]


def test_an_entry_has_its_time_its_cause_who_asked_and_what_was_decided() -> None:
    harness = StoriesHarness()
    harness.stories.cause = "JoinGroup", Asker("app-1", "/10.0.0.3")
    now_ms = harness.clock.wall_ms()
    harness.stories.add("g", "Member %s joins %s", ("m", "g"))
    (line,) = harness.stories.of("g")
    assert (line.time_ms, line.cause, line.client_id, line.host, line.text) == (
        now_ms, "JoinGroup", "app-1", "/10.0.0.3", "Member m joins g",
    )  # fmt: skip
    assert harness.stories.of("another") == []


def test_a_timer_is_a_cause_by_its_kind() -> None:
    harness = StoriesHarness()
    harness.stories.add("g", "gone", cause=because(("session", "g", "m")))
    assert harness.stories.of("g")[0].cause == "timer session"


def test_the_oldest_entry_goes_first() -> None:
    harness = StoriesHarness()
    for number in range(ENTRIES_MAX + 5):
        harness.stories.add("g", "%d", (number,))
    assert harness.texts() == [str(number) for number in range(5, ENTRIES_MAX + 5)]


def test_what_happens_all_the_time_is_one_entry_that_grows() -> None:
    harness = StoriesHarness()
    harness.stories.add("g", "before")
    began_ms = harness.clock.wall_ms()
    for number in range(1_000):
        harness.clock.advance(1)
        harness.stories.grow("g", "committed up to %d", (number,), 2)
    line = harness.stories.of("g")[-1]
    assert len(harness.stories.of("g")) == 2
    assert (line.first_ms, line.time_ms, line.times, line.text) == (
        began_ms + 1,
        began_ms + 1_000,
        2_000,
        "committed up to 999",
    )


def test_a_course_of_events_in_turn_grows_and_an_event_of_another_kind_ends_it() -> None:
    harness = StoriesHarness()
    course = [f"step {number}" for number in range(GROWING_MAX)]
    for _ in range(3):
        for text in course:
            harness.stories.grow("g", text)
    assert [(line.text, line.times) for line in harness.stories.of("g")] == [(text, 3) for text in course]
    harness.stories.add("g", "fenced")
    harness.stories.grow("g", course[0])
    assert harness.texts() == [*course, "fenced", course[0]]


def test_the_story_that_was_added_longest_ago_goes_when_all_take_too_many_bytes() -> None:
    harness = StoriesHarness(bytes_max=3 * (STORY_BYTES + 4 + ENTRY_BYTES) + 100)
    for key in "abc":
        harness.stories.add(key, "")
    harness.stories.grow("a", "")
    harness.stories.add("d", "")
    assert "b" not in harness.stories and "d" in harness.stories


def test_no_number_of_keys_and_no_length_of_names_takes_more_bytes_than_the_bound() -> None:
    harness = StoriesHarness(bytes_max=200_000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(2_000):
        name = f"{number}-" + "\U0001f600" * (number * 17 % 30_000)
        harness.stories.cause = (("session", name, name), Asker(name, name))
        harness.stories.add(f"{number % 300}" if number % 2 else name, "%s of %s", (name, number))
        harness.stories.grow(f"{number % 7}", "%s", (name,))
        assert harness.stories.bytes <= 200_000
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # The cause and the variable refer to the last name, too.
    assert taken < 200_000 + 8 * 30_000


def test_the_estimate_of_the_bytes_is_not_too_low() -> None:
    harness = StoriesHarness()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(500):
        harness.stories.add(f"group-{number % 100}", "%d %d %s", (number << 40, number << 41, f"member-{number}"))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken <= harness.stories.bytes


def test_a_long_name_is_cut_and_an_object_is_kept_as_it_is_now() -> None:
    harness = StoriesHarness()
    changing = [1]
    harness.stories.add("g", "%s %s", ("x" * 10_000, changing))
    changing.append(2)
    assert harness.texts() == ["x" * FACT_LENGTH_MAX + "... [1]"]


def test_facts_that_do_not_fit_the_text_are_shown_all_the_same() -> None:
    harness = StoriesHarness()
    harness.stories.add("g", "%d", ("x",))
    assert harness.texts() == ["%d ('x',)"]


def test_a_teller_logs_the_line_and_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    harness = StoriesHarness()
    teller = harness.stories.logger_of("g", log, because("test"))
    teller.info("one %d", 1)
    teller.warning("two")
    teller.error("three")
    assert [f"{record.levelname} {record.getMessage()}" for record in caplog.records] == [
        "INFO one 1", "WARNING two", "ERROR three",
    ]  # fmt: skip
    assert {record.filename for record in caplog.records} == {"test_story.py"}, "the line is that of the caller"
    assert harness.texts() == ["one 1", "two", "three"]


def test_a_printed_story_has_a_line_for_each_entry(caplog: pytest.LogCaptureFixture) -> None:
    harness = StoriesHarness()
    harness.stories.cause = "JoinGroup", Asker("app", "/h")
    harness.stories.add("g", "joins")
    harness.stories.grow("g", "commits")
    harness.stories.grow("g", "commits")
    now_ms = harness.clock.wall_ms()
    harness.stories.print("g")
    harness.stories.print("g")  # a moment later
    assert [record.getMessage() for record in caplog.records] == [
        "The story of group g: 2 entries",
        f"  {now_ms} JoinGroup of app at /h: joins",
        f"  {now_ms} JoinGroup of app at /h: 2 times since {now_ms}, the last one: commits",
    ]
    harness.clock.advance(PRINT_EVERY_MS)
    harness.stories.print("g")
    assert len(caplog.records) == 6
