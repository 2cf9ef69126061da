"""The caches by names that clients choose."""

from __future__ import annotations

from ottla.server.client_bounds import ENTRY_BYTES, NAME_LENGTH_MAX, Kept, short, shown


def test_a_cache_never_has_more_bytes_than_its_bound() -> None:
    kept: Kept[str, int] = Kept("numbers", 10 * ENTRY_BYTES)
    for number in range(1_000):
        name = f"{number}" * (number % 60)
        assert kept.keep(name, number, name) == number
        assert kept[name] == number and kept.bytes <= kept.bytes_max
    assert kept.overflows >= 1_000 / 10
    overflows = kept.overflows
    kept.clear()
    assert (kept.bytes, kept.overflows) == (0, overflows), "only what the bound has done is counted"


def test_what_has_a_long_name_is_not_kept() -> None:
    kept: Kept[str, int] = Kept("names", 1 << 20)
    kept.keep("x" * NAME_LENGTH_MAX, 1, "x" * NAME_LENGTH_MAX)
    kept.keep("x" * 257, 2, "x" * 257)
    assert list(kept.values()) == [1]


def test_long_names_differ_in_what_stands_for_them_and_are_shown_by_their_beginning() -> None:
    long = "x" * 30_000
    assert short("usual") == shown("usual") == "usual"
    assert short(long) != short(long + "y") and len(short(long)) < 80
    assert shown(long) == f"{'x' * 256}... (30000 characters)"
