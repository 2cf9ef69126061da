"""Stories: the last decisions about a group, a partition or a transactional id, each with its cause, kept in memory in bounded bytes.

The model is `story(key)` of dask's scheduler. A decision is added where it is made, mostly by the call that also logs it
(`StoryLogger`), so that log and story have the same text. Frequent events, such as commits of offsets, share one entry that
grows (`Stories.grow`); otherwise they would push everything else out. Nothing is formatted until a story is requested, or an
invariant breaks (`Stories.print`).

A story is a help for people: it is neither replicated nor on a disk, ends with the process, and no code decides by it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

log = logging.getLogger(__name__)

#: The most entries of one story.
ENTRIES_MAX = 50
#: The most bytes of all stories of one kind. The least recently extended story is dropped first.
STORIES_BYTES_MAX = 4 * 1024 * 1024
#: The most characters of a text among the facts: names that clients choose may have 32 KB.
FACT_LENGTH_MAX = 200
#: This many entries at the end of a story can grow: the usual course of a transaction has three.
GROWING_MAX = 4
#: The bytes of an entry besides its texts, and of a story besides its key. tests/server/test_story.py measures them.
ENTRY_BYTES, STORY_BYTES = 400, 900

#: A story of 50 lines is logged at most this often.
PRINT_EVERY_MS = 60_000

K = TypeVar("K", bound=Hashable)
Fact: TypeAlias = str | int | float | None


class Asking(Protocol):
    """The client that has sent a request."""

    @property
    def client_id(self) -> str: ...
    @property
    def host(self) -> str: ...


class Asker(NamedTuple):
    """A client, by its name and host only."""

    client_id: str = ""
    host: str = ""


UNNAMED = Asker()
#: The cause of a decision: the API of a request, the name of an event, or the key of a timer; and the client. It is a plain
#: tuple, because each heartbeat makes one.
Cause: TypeAlias = tuple[object, Asking]
NO_CAUSE: Cause = ("", UNNAMED)


def because(what: object) -> Cause:
    """Return the cause of something that no client has requested."""
    return what, UNNAMED


def by_timer(key: Hashable) -> Cause:
    """Return the cause of something that a timer triggers. Its key is a name, or a tuple of a name and its subject."""
    return (key if isinstance(key, tuple) else (key,)), UNNAMED


class StoryLine(NamedTuple):
    """One entry of a story, for clients. Times are wall-clock times in ms."""

    time_ms: int
    #: The first time of an entry that has grown, and its number of events.
    first_ms: int
    times: int
    cause: str
    client_id: str
    host: str
    text: str


def _fact(value: object) -> Fact:
    """Return a short form of the present value, without the object, which may change later."""
    if isinstance(value, str):
        return value if len(value) <= FACT_LENGTH_MAX else value[:FACT_LENGTH_MAX] + "..."
    if value is None or type(value) is int or type(value) is float:
        return value
    return _fact(str(value))


def _text(value: object) -> str:
    return str(_fact(value))


def _what(what: object) -> str:
    """Return the name of a cause. The name of a timer is the kind in its key; the text has the subject."""
    return f"timer {what[0]}" if isinstance(what, tuple) and what else _text(what)


class _Entry:
    __slots__ = ("bytes", "client_id", "facts", "first_ms", "grows", "host", "last_ms", "text", "times", "what")

    def __init__(self, now_ms: int, text: str, times: int, grows: bool) -> None:
        self.first_ms = self.last_ms = now_ms
        self.text, self.times, self.grows = text, times, grows
        self.bytes = 0

    def set(self, cause: Cause, facts: tuple[object, ...]) -> int:
        """Take over the newest cause and facts. Return by how many bytes the entry has grown."""
        what, asker = cause
        self.what, self.client_id, self.host = _what(what), _text(asker.client_id), _text(asker.host)
        self.facts = tuple(map(_fact, facts))
        texts = (self.what, self.client_id, self.host, *self.facts)
        before = self.bytes
        # A character has at most 4 bytes.
        self.bytes = ENTRY_BYTES + 16 * len(facts) + 4 * sum(len(each) for each in texts if isinstance(each, str))
        return self.bytes - before

    def line(self) -> StoryLine:
        try:
            text = self.text % self.facts
        except (TypeError, ValueError):
            text = f"{self.text} {self.facts}"
        return StoryLine(self.last_ms, self.first_ms, self.times, self.what, self.client_id, self.host, text)


class _Story:
    __slots__ = ("bytes", "entries")

    def __init__(self, key: Hashable) -> None:
        self.entries: list[_Entry] = []
        self.bytes = STORY_BYTES + 4 * len(str(key))

    def growing(self, text: str) -> _Entry | None:
        """Return the entry with this text, if only growing entries came after it."""
        for entry in reversed(self.entries[-GROWING_MAX:]):
            if not entry.grows:
                return None
            if entry.text is text:
                return entry
        return None


class Stories(Generic[K]):
    """The stories of one kind, by their keys.

    `noun` names the kind; `wall_ms` is the clock. `cause` is that of the present decision: the code that begins a decision sets
    it, and awaits nothing until its end.
    """

    def __init__(self, noun: str, wall_ms: Callable[[], int], bytes_max: int = STORIES_BYTES_MAX) -> None:
        self.noun = noun
        self.cause = NO_CAUSE
        #: The bytes of all stories, by an estimate that is never too low.
        self.bytes = 0
        self._wall_ms = wall_ms
        self._bytes_max = bytes_max
        #: The most recently extended story is the last one.
        self._stories: OrderedDict[K, _Story] = OrderedDict()
        self._printed: tuple[K, int] | None = None

    def __len__(self) -> int:
        return len(self._stories)

    def __contains__(self, key: object) -> bool:
        return key in self._stories

    def logger_of(self, key: K, logger: logging.Logger, cause: Cause | None = None) -> StoryLogger[K]:
        """Return a logger whose lines are also entries of the key's story."""
        return StoryLogger(self, key, logger, cause)

    def add(self, key: K, text: str, facts: tuple[object, ...] = (), cause: Cause | None = None) -> None:
        """Add an entry. `text` and `facts` are the arguments of `logging`."""
        entry = _Entry(self._wall_ms(), text, 1, grows=False)
        entry.set(self.cause if cause is None else cause, facts)
        self._add(key, entry)

    def grow(self, key: K, text: str, facts: tuple[object, ...] = (), times: int = 1) -> None:
        """Add a frequent event: the newest one replaces the cause and the facts of the entry with the same text.

        This is a hot path.
        """
        story = self._stories.get(key)
        entry = None if story is None else story.entries[-1]
        if story is not None and entry is not None and entry.text is not text:
            entry = story.growing(text)
        if story is None or entry is None or not entry.grows:
            entry = _Entry(self._wall_ms(), text, times, grows=True)
            entry.set(self.cause, facts)
            self._add(key, entry)
            return
        self._stories.move_to_end(key)
        entry.last_ms = self._wall_ms()
        entry.times += times
        if facts:
            more = entry.set(self.cause, facts)
            story.bytes += more
            self.bytes += more
            self._evict()

    def _add(self, key: K, entry: _Entry) -> None:
        story = self._stories.get(key)
        if story is None:
            story = self._stories[key] = _Story(key)
            self.bytes += story.bytes
        else:
            self._stories.move_to_end(key)
        gone = story.entries.pop(0).bytes if len(story.entries) >= ENTRIES_MAX else 0
        story.entries.append(entry)
        story.bytes += entry.bytes - gone
        self.bytes += entry.bytes - gone
        self._evict()

    def _evict(self) -> None:
        while self.bytes > self._bytes_max:
            self.bytes -= self._stories.popitem(last=False)[1].bytes

    def of(self, key: K) -> list[StoryLine]:
        """Return the story of the key, the oldest entry first. It is empty if nothing was added, or the story was dropped."""
        story = self._stories.get(key)
        return [] if story is None else [entry.line() for entry in story.entries]

    def print(self, key: K) -> None:
        """Log the story, because an invariant about the key does not hold.

        If that happens again and again, it is logged once a minute.
        """
        now_ms = self._wall_ms()
        if self._printed is not None and self._printed[0] == key and 0 <= now_ms - self._printed[1] < PRINT_EVERY_MS:
            return
        self._printed = key, now_ms
        lines = self.of(key)
        log.error("The story of %s %s: %d entries", self.noun, _fact(str(key)), len(lines))
        for line in lines:
            log.error("  %s", line_of(line))


def line_of(line: StoryLine) -> str:
    """Return an entry as a log line: its time in ms, its cause, and the decision."""
    grown = f"{line.times} times since {line.first_ms}, the last one: " if line.times > 1 else ""
    asker = "".join((f" of {line.client_id}" if line.client_id else "", f" at {line.host}" if line.host else ""))
    return f"{line.time_ms} {line.cause or '-'}{asker}: {grown}{line.text}"


class StoryLogger(NamedTuple, Generic[K]):
    """Logs a line, and adds it to the story of a key: one text for both."""

    stories: Stories[K]
    key: K
    logger: logging.Logger
    cause: Cause | None = None

    def info(self, text: str, *facts: object) -> None:
        self._log(logging.INFO, text, facts)

    def warning(self, text: str, *facts: object) -> None:
        self._log(logging.WARNING, text, facts)

    def error(self, text: str, *facts: object) -> None:
        self._log(logging.ERROR, text, facts)

    def _log(self, level: int, text: str, facts: tuple[object, ...]) -> None:
        # The log line has the place of the code that logs, two calls above.
        self.logger.log(level, text, *facts, stacklevel=3)
        self.stories.add(self.key, text, facts, self.cause)
