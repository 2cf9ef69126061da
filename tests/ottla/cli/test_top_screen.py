"""The screen of `ottla top`: what fits on it, and what keys change on it."""

from __future__ import annotations

import pytest

from ottla.cli.full_screen import keys_in
from ottla.cli.output import Row
from ottla.cli.top_screen import GROUPS, NODES, TOPICS, TopScreen, shares
from ottla.cli.top_view import GroupLook, NodeLook, TopicLook, TopLook

ESCAPE = "\x1b]0;title\x07"


def rows(count: int = 50) -> dict[str, list[Row]]:
    before, now = TopLook(0), TopLook(1000)
    now.nodes = {node: NodeLook(leaders=node, replicas=9 - node) for node in (1, 2, 3)}
    for number in range(count):
        before.topics[f"t{number:02}"], now.topics[f"t{number:02}"] = TopicLook(), TopicLook(end=number)
        now.groups[f"g{number:02}"] = GroupLook("classic", "Empty", 0, number)
    return now.rows(before)


def names(lines: list[str]) -> list[str]:
    firsts = [line.split(" ")[0] for line in lines if " of " not in line]
    return [name for name in firsts if name.lstrip("tg").isdecimal()]


def pressed(keys: str, *more: str) -> TopScreen:
    screen = TopScreen()
    assert all(screen.press(key) for key in (*keys, *more))
    return screen


def test_a_small_screen_has_the_busiest_topics_and_says_how_many_are_left_out() -> None:
    lines = TopScreen().lines(rows(), 20, 200)
    assert len(lines) <= 20 and names(lines)[:5] == ["1", "2", "3", "t49", "t48"]
    assert "g49" in names(lines) and [line for line in lines if line.startswith("... ")] == [
        "... 46 more",
        "... 45 more",
    ]
    assert len(TopScreen().lines(rows(), 1000, 200)) == 4 + 1 + 51 + 1 + 51


def test_lines_that_a_short_table_does_not_need_are_for_the_others() -> None:
    assert shares([3, 50, 50], 23) == [3, 10, 10] and shares([0, 50, 2], 12) == [0, 10, 2]
    assert shares([90, 50, 70], 1) == [1, 1, 1], "the head of each is there, and the screen cuts what is too much"


def test_a_table_alone_is_moved_in_and_stays_within_its_rows() -> None:
    screen = pressed("t")
    assert names(screen.lines(rows(), 12, 200)) == [f"t{number}" for number in range(49, 39, -1)]
    assert screen.lines(rows(), 12, 200)[-1] == "1 to 10 of 50"
    screen.press("page-down"), screen.press("down"), screen.press("up")
    assert names(screen.lines(rows(), 12, 200))[0] == "t39"
    for _ in range(9):
        screen.press("page-down")
    assert screen.lines(rows(), 12, 200)[-1] == "41 to 50 of 50" and screen.first == 40
    assert names(screen.lines(rows(5), 12, 200)) == ["t04", "t03", "t02", "t01", "t00"], "45 topics were deleted"


def test_each_key_of_a_table_shows_it_and_tab_the_next() -> None:
    assert [pressed(key).view for key in "antg"] == ["all", NODES, TOPICS, GROUPS]
    screen = TopScreen()
    assert [screen.press("tab") and screen.view for _ in range(4)] == [NODES, TOPICS, GROUPS, "all"]
    assert names(pressed("g").lines(rows(3), 30, 200)) == ["g02", "g01", "g00"]


def test_a_table_is_sorted_by_the_column_beside_and_in_the_other_direction() -> None:
    screen = pressed("n>")
    assert names(screen.lines(rows(), 9, 200)) == [
        "3",
        "2",
        "1",
    ] and "nodes by leaders, largest first" in screen.status(200, rows())
    screen.press("right")
    assert names(screen.lines(rows(), 9, 200)) == ["1", "2", "3"], "replicas"
    screen.press("r")
    assert names(screen.lines(rows(), 9, 200)) == ["3", "2", "1"]
    screen.press("<"), screen.press("left")
    assert "nodes by node, smallest first" in screen.status(200, rows())
    screen.press("<")
    assert screen.sorts[NODES].column == "memory" and names(screen.lines(rows(), 9, 200)) == ["1", "2", "3"], (
        "none is known"
    )
    screen.press("a")
    assert names(screen.lines(rows(), 20, 200))[:3] == ["1", "2", "3"] and screen.press(">")
    assert screen.sorts[NODES].column == "memory", "which table of the three is not known"


def test_a_pause_help_and_the_end() -> None:
    screen = pressed(" ")
    assert screen.is_paused and screen.status(80, rows()).startswith("paused; ")
    screen.press(" ")
    assert not screen.is_paused
    helped = pressed("t?")
    assert "sort a table by another column" in "\n".join(helped.lines(rows(), 20, 80))
    assert helped.press("") and helped.is_help, "the terminal has another size"
    assert helped.press("g") and not helped.is_help and helped.view == TOPICS
    assert not helped.press("q")


@pytest.mark.parametrize("width", [1, 12, 20, 40, 60, 80, 120])
def test_a_narrow_terminal_has_fewer_columns_and_no_heading_is_cut(width: int) -> None:
    screen = pressed("g>>")
    heading, *lines = screen.lines(rows(), 9, width)
    assert heading.split()[0] == "GROUP"
    assert set(heading.split()) <= {"GROUP", "TYPE", "STATE", "LAG", "CONSUMED-PER-S", "TIME-LEFT"}
    assert screen.sorts[GROUPS].column.upper().replace("_", "-") in heading.split()
    if width >= 40:
        assert max(map(len, (heading, *lines))) <= width
    left_out = 6 - len(heading.split())
    assert (f"{left_out} columns need more width" in screen.status(width, rows())) == bool(left_out)


def test_a_long_name_leaves_room_and_a_name_cannot_steer_the_terminal() -> None:
    now = TopLook(1000)
    now.groups = {ESCAPE + "g" * 200: GroupLook("classic", "Empty", 0, 7)}
    (_, line) = pressed("g").lines(now.rows(now), 9, 60)
    assert (
        line.startswith("\\x1b]0;title\\x07ggg") and "...  classic" in line and line.isprintable() and len(line) <= 60
    )


def test_keys_are_read_also_in_pieces() -> None:
    assert keys_in("qt\x1b[A\x1bOB\x1b[6~\tä") == (["q", "t", "up", "down", "page-down", "tab", "ä"], "")
    assert keys_in("t\x1b[") == (["t"], "\x1b[")
    assert keys_in("\x1b[5~g") == (["page-up", "g"], "")
    assert keys_in("\x1b[Z")[1] == "" and keys_in("\x1b") == ([], "\x1b")
