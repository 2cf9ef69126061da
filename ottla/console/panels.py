"""The panels of the pages. What does not exist has no panel: the failure becomes the page's, which answers 404.

A panel is loaded from the cluster when a page is opened, shared by all users, and waited for only up to a limit.

If the cluster is slow, a panel shows its former value, with the age and the reason. The request goes on meanwhile, up to the
client's own time limit, so that the next page may find its result.

All panels together have a bound of bytes. The least recently used ones are dropped. A screen of records is lent: only its
present readers share it, its largest possible size is counted, and it is rejected if there is no room for it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from ottla.client.failures import NO_SUCH_THING, Failure, Kind
from ottla.console.problems import remedy_of

T = TypeVar("T")

#: A page waits this long for a panel.
LIMIT_S = 2.5
#: A value is shared for this long.
FRESH_S = 1.0
PANELS_MAX = 128
#: Room for eight screens of records, as many as are read at once, and for the other panels.
BYTES_MAX = 160 * 1024 * 1024
#: The bytes that an entry takes besides its value.
PANEL_BYTES = 1_000
#: How many items of a collection are measured, by its depth in the value: at most 16,384 in all, which takes some milliseconds.
SAMPLED = (64, 16, 4, 2, 2)
#: At most this many requests are under way: when all brokers are silent, each page would add one.
ASKED_MAX = 48


@dataclass(frozen=True)
class Shown(Generic[T]):
    """A panel as a page shows it: its value (None if there never was one), its age, and why it is not newer."""

    value: T | None
    age_s: float = 0.0
    problem: str | None = None
    hint: str | None = None

    @property
    def stale(self) -> bool:
        return self.value is not None and self.problem is not None


@dataclass
class _Panel:
    value: Any = None
    loaded_s: float | None = None
    problem: str | None = None
    hint: str | None = None
    #: The last answer: there is no such thing.
    is_absent: bool = False
    task: asyncio.Task[None] | None = None
    #: The bytes that are counted for it.
    size: int = PANEL_BYTES
    is_lent: bool = False
    #: If it is lent: the number of its readers.
    lookers: int = 0

    @property
    def is_held(self) -> bool:
        return self.task is not None or self.lookers > 0


class Panels:
    """The most recently used panels, by key."""

    def __init__(self, limit_s: float = LIMIT_S, panels_max: int = PANELS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._limit_s = limit_s
        self._panels_max = panels_max
        self._bytes_max = bytes_max
        self._panels: OrderedDict[object, _Panel] = OrderedDict()

    @property
    def bytes(self) -> int:
        """The bytes of all panels together."""
        return sum(each.size for each in self._panels.values())

    async def show(self, key: object, load: Callable[[], Awaitable[T]]) -> Shown[T]:
        """Return the panel `key`. It is loaded now if it is not fresh.

        Raises:
            Failure: what the panel is about does not exist. `lend` raises it too.
        """
        return await self._shown(key, self._panel(key), load, self._limit_s)

    @asynccontextmanager
    async def lend(
        self, key: object, load: Callable[[], Awaitable[T]], limit_s: float, size_max: int
    ) -> AsyncIterator[Shown[T]]:
        """Return a panel of at most `size_max` bytes. Those who use it at the same time share it; after that it is dropped."""
        panel = self._panels.get(key)
        if panel is None:
            if not self._make_room(size_max):
                yield Shown(None, 0.0, "too many screens of records are looked at", "try again in a moment")
                return
            panel = self._panel(key)
            panel.is_lent, panel.size = True, size_max
        panel.lookers += 1
        try:
            yield await self._shown(key, panel, load, limit_s)
        finally:
            panel.lookers -= 1
            self._give_back(key, panel)

    async def _shown(self, key: object, panel: _Panel, load: Callable[[], Awaitable[T]], limit_s: float) -> Shown[T]:
        now = time.monotonic()
        if panel.loaded_s is not None and now - panel.loaded_s < FRESH_S and panel.problem is None:
            return Shown(panel.value)
        if panel.task is None:
            if sum(each.task is not None for each in self._panels.values()) >= ASKED_MAX:
                return Shown(panel.value, self._age(panel), "the cluster has not answered too many questions")
            panel.task = asyncio.create_task(self._load(key, panel, load))
        await asyncio.wait([panel.task], timeout=limit_s)
        if panel.task is not None and not panel.task.done():
            waited = f"no answer within {limit_s:g} s"
            return Shown(panel.value, self._age(panel), panel.problem or waited, panel.hint)
        if panel.is_absent:
            raise Failure(panel.problem or "", panel.hint, Kind.NOT_THERE)
        return Shown(panel.value, 0.0 if panel.problem is None else self._age(panel), panel.problem, panel.hint)

    def forget(self) -> None:
        """Load all panels again when they are used next, because something was changed."""
        for panel in self._panels.values():
            panel.loaded_s = None

    def close(self) -> None:
        for panel in self._panels.values():
            if panel.task is not None:
                panel.task.cancel()

    def _panel(self, key: object) -> _Panel:
        panel = self._panels.setdefault(key, _Panel())
        self._panels.move_to_end(key)
        for old in [each for each, row in self._panels.items() if not row.is_held and row is not panel]:
            if len(self._panels) <= self._panels_max:
                break
            del self._panels[old]
        return panel

    def _make_room(self, size: int) -> bool:
        """Drop the least recently used panels that no page uses, until there is room for this many bytes.

        Return whether there is.
        """
        left = self._bytes_max - size - self.bytes
        for key in [each for each, row in self._panels.items() if not row.is_held]:
            if left >= 0:
                break
            left += self._panels.pop(key).size
        return left >= 0

    def _give_back(self, key: object, panel: _Panel) -> None:
        if panel.is_lent and not panel.is_held and self._panels.get(key) is panel:
            del self._panels[key]

    def _age(self, panel: _Panel) -> float:
        return 0.0 if panel.loaded_s is None else time.monotonic() - panel.loaded_s

    async def _load(self, key: object, panel: _Panel, load: Callable[[], Awaitable[Any]]) -> None:
        panel.is_absent = False
        try:
            panel.value = await load()
        except Failure as fault:
            panel.problem, panel.hint = fault.cause, remedy_of(fault)
            panel.is_absent = fault.kind in NO_SUCH_THING
        except TimeoutError:
            panel.problem, panel.hint = "the cluster did not answer in time", None
        except Exception as fault:  # an unexpected response must not break the page
            panel.problem, panel.hint = f"{type(fault).__name__}: {fault}", None
        else:
            panel.problem = panel.hint = None
            panel.loaded_s = time.monotonic()
        finally:
            panel.task = None
            if panel.is_lent:
                self._give_back(key, panel)
            else:
                panel.size = PANEL_BYTES + footprint(key) + footprint(panel.value)
                self._make_room(0)


def footprint(value: Any, depth: int = 0) -> int:
    """Return approximately how many bytes a value has in memory.

    Of a long collection only a sample is measured. Below the depth of SAMPLED, only an object itself is counted, without its
    items.
    """
    size = sys.getsizeof(value)
    if depth >= len(SAMPLED) or isinstance(value, str | bytes | int | float | None):
        return size
    if isinstance(value, Mapping):
        return size + _of_items((part for row in value.items() for part in row), 2 * len(value), depth)
    if isinstance(value, Collection):
        return size + _of_items(value, len(value), depth)
    return size + sum(footprint(part, depth + 1) for part in _fields_of(value))


def _of_items(items: Iterable[Any], count: int, depth: int) -> int:
    step = max(1, count // SAMPLED[depth]) | 1  # an odd step, so that it reaches keys and values of a mapping
    sizes = [footprint(item, depth + 1) for item in islice(items, 0, count, step)]
    return sum(sizes) * count // max(1, len(sizes))


def _fields_of(value: Any) -> list[Any]:
    names = [name for made in type(value).__mro__ for name in made.__dict__.get("__slots__", ())]
    return [getattr(value, name) for name in names if hasattr(value, name)] + list(
        getattr(value, "__dict__", {}).values()
    )
