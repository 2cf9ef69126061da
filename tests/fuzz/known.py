"""Findings that are not mended yet, each with an input that shows it: a test turns red as soon as one is gone."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """`kind` as the judge says it, "*" for whatever this target finds; `data`, in hex, shows one."""

    target: str
    kind: str
    data: str
    reason: str


KNOWN: list[Known] = [
    Known(
        "snapshot",
        "*",
        "030000000000000000002000470000000002d6985cba00200000000000000000000003e8010000000000010000000000000000000000470000000102b2a3b67b0020000000000000000000000000000000",
        "a damaged record in a metadata snapshot is a KafkaError, MalformedMessage or AssertionError instead of CorruptFile",
    ),
    Known(
        "groups",
        "AssertionError in broker/groups/classic/member.py:metadata",
        "00047f000200000000000e6772c3b6c39f650000003800076772c3b6c39f650007746f7069632d31000000020007746f7069632d310007746f7069632d3100076772c3b6c39f650000006300000003000102000000030001020007746f7069632d310007746f7069632d3100076772c3b6c39f65000000360000000300010200000003000102",
        "a group that was loaded with members and no protocol cannot be described",
    ),
    Known(
        "transactions",
        "ValueError in broker/transactions/transaction.py:from_record",
        "000423000000000001000000000000000000000000000034000000000000000000000000000000000000",
        "a status that is none is no typed error",
    ),
    Known(
        "log",
        "KafkaError out of storage/recovery.py:open_log",
        "0300000000000000007676767676767676767676767676767676000000000000000000000000000000000000000000000000000000000000000300000076ff01",
        "a control batch that cannot be read keeps the log, and the node, from opening",
    ),
    Known(
        "trusted",
        "*",
        "0200000000000000000000006a000000000249dd72e10000000000010000018bcfe568000000018bcfe56801ffffffffffffffffffffffffffff000000025e000000026b507676767676767676767676767676767676767676767676767676767676767676767676767676767610326b0402000200010000000000000000020000006a0000000102fa726df30010000000010000018bcfe568000000018bcfe568010000000000000007000000000000000000025e000000026b50767676767676767676767676767676767676767676767676767676767676767676767676767676760010000202046b320100000000000000000400000042000000010219e855ef0030000000000000018bcfe568000000018bcfe5680000000000000000070000ffffffff000000012000000008000000000c00000000000000000000000000000500000068000000020248b061520001000000050000018bcfe568000000018bcfe56801ffffffffffffffffffffffffffff000000061f8b08000000000000038b63606060ca0e2823123008303031b1641b3132c43130b090a8910da69183448d5c608d007081200eab000000ff2dff0000000300000076ff2dff0000018bcfe5680100000003ff2dff320a3220350a",
        "damage below the recovery point is served, or keeps the log from opening",
    ),
    Known(
        "replicate",
        "Wrong in tests/fuzz/appends.py:_one",
        "0100000000000000092b00003f00000008028f6608e60020000000010000ffffffffffffffffffffffffffff000000011a00000079f8ffff00040600000000",
        "a marker that cannot be read is in the log though it was refused",
    ),
]


def reason(target: str, kind: str) -> str | None:
    """Why a finding of this kind is no news; None when it is."""
    return next((known.reason for known in KNOWN if known.target == target and known.kind in (kind, "*")), None)
