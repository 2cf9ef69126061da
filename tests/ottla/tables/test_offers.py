"""Offers by their names, and the order of offers."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.tables.offers import LOST, NO_ROWS, NOT_BEGUN, PARQUET, Offer, TablePosition, chain, names_after, offer_of

UID = UUID(int=7).hex
OFFSETS = st.integers(0, 1 << 62)


def offer(after: tuple[int, int], next_: int, epoch: int, *, first: int | None = None, rows: int = 1) -> Offer:
    suffix = PARQUET if rows else NO_ROWS
    position = TablePosition(*after)
    return Offer(0, position, position.next if first is None else first, next_, epoch, rows, 0, UID, suffix)


@given(
    OFFSETS, st.integers(1, 1 << 20), st.integers(-1, 9), st.integers(0, 9), st.integers(0, 1 << 30), st.integers(0, 9)
)
def test_a_name_says_all_of_an_offer(after: int, size: int, epoch: int, later: int, rows: int, rejected: int) -> None:
    made = Offer(
        3,
        TablePosition(after, epoch),
        after,
        after + size,
        epoch + later,
        rows,
        rejected,
        UID,
        PARQUET if rows else NO_ROWS,
    )
    assert offer_of(made.name) == made


@given(OFFSETS, OFFSETS)
def test_names_are_in_the_order_of_their_positions(one: int, other: int) -> None:
    first, second = sorted((one, other))
    assert names_after(0, second) < offer((second, 0), second + 1, 0).name
    if first < second:
        assert offer((first, 9), first + 1, 9).name < names_after(0, second)


def test_a_file_that_others_have_put_there_is_no_offer() -> None:
    name = offer((5, 1), 9, 2).name
    for wrong in (
        "data/00000/part-0.parquet",
        "data/00000/.unfinished-7",
        name.replace(".parquet", ".crc"),
        name.replace("_2_1_0_", "_2_01_0_"),
        name.replace("data/00000", "data/0"),
        name.replace("_00000000000000000009_", "_00000000000000000005_"),  # no offset between first and next
        name.replace("data/", "elsewhere/"),
        f"{name[:-8]}.{NO_ROWS}",  # with rows
        "",
    ):
        assert offer_of(wrong) is None, wrong


def test_files_follow_each_other_without_a_gap() -> None:
    a, b, behind_a_gap = offer((0, NOT_BEGUN), 10, 0), offer((10, 0), 15, 0), offer((20, 0), 30, 0)
    assert chain([behind_a_gap, b, a], TablePosition(0, NOT_BEGUN)) == [a, b]


def test_of_two_leaders_the_newer_is_taken_and_of_one_the_longer_file() -> None:
    old, short, long = offer((0, 0), 50, 1), offer((0, 0), 5, 2), offer((0, 0), 9, 2)
    assert chain([old, short, long], TablePosition(0, 0)) == [long]


def test_an_offer_that_goes_back_is_taken_once() -> None:
    """After an unclean election the leader continues from 6. When it comes to 10 again, its own position has a newer epoch."""
    back, forth = offer((10, 1), 8, 2, first=6), offer((8, 2), 10, 2)
    assert chain([back, forth], TablePosition(10, 1)) == [back, forth]
    assert chain([back, forth], TablePosition(10, 2)) == []


def test_lost_offsets_are_counted() -> None:
    made = Offer(0, TablePosition(5, 1), 5, 25, 2, 0, 0, UID, LOST)
    assert offer_of(made.name) == made and made.lost == 20
