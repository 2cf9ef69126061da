"""The clocks of a node in a test: days pass for sessions and retention, but not between nodes."""

from __future__ import annotations

import asyncio
import time

from ottla.testing.inside.clock import NodeClock, SessionClock

DAY_MS = 86_400_000
#: This is much less than a day, and longer than any pause of a busy machine.
MINUTE_MS = 60_000


async def clocks() -> tuple[NodeClock, SessionClock]:
    node = NodeClock(asyncio.get_running_loop())
    return node, SessionClock(node)


async def test_days_pass_by_the_session_clock_and_none_by_the_clock_that_keeps_nodes_in_touch() -> None:
    node, sessions = await clocks()
    sessions.advance_to(10 * DAY_MS)
    readings = [
        time.monotonic_ns() // 1_000_000,
        node.mono_ms(),
        sessions.mono_ms() - 10 * DAY_MS,
        sessions.mono_ns() // 1_000_000 - 10 * DAY_MS,
        node.mono_ms(),
        time.monotonic_ns() // 1_000_000,
    ]
    assert readings == sorted(readings), "they are of one clock, each read after the one before"


async def test_a_wall_clock_that_is_wrong_moves_no_timer_and_is_the_same_for_both_clocks() -> None:
    node, sessions = await clocks()
    node.ahead_ms = -3 * DAY_MS
    assert abs(node.wall_ms() - time.time() * 1000 + 3 * DAY_MS) < MINUTE_MS
    assert abs(sessions.wall_ms() - node.wall_ms()) < MINUTE_MS
    assert abs(sessions.mono_ms() - node.mono_ms()) < MINUTE_MS


async def test_timers_that_are_due_after_the_advance_run_in_their_order_and_the_others_wait() -> None:
    node, sessions = await clocks()
    ran: list[str] = []
    sessions.call_later(2 * DAY_MS, lambda: ran.append("second"))
    sessions.call_later(1 * DAY_MS, lambda: ran.append("first"))
    sessions.call_later(1 * DAY_MS, lambda: ran.append("cancelled")).cancel()
    sessions.call_later(20 * DAY_MS, lambda: ran.append("later"))
    node.call_later(1 * DAY_MS, lambda: ran.append("of the node"))
    sessions.advance_to(10 * DAY_MS)
    await asyncio.sleep(0.05)
    assert ran == ["first", "second"]
    sessions.advance_to(21 * DAY_MS)
    await asyncio.sleep(0.05)
    assert ran == ["first", "second", "later"]


async def test_a_timer_that_is_set_after_the_advance_takes_its_time() -> None:
    _, sessions = await clocks()
    sessions.advance_to(10 * DAY_MS)
    ran: list[str] = []
    sessions.call_later(10_000, lambda: ran.append("too early"))
    sessions.call_later(1, lambda: ran.append("soon"))
    await asyncio.sleep(0.05)
    assert ran == ["soon"]
