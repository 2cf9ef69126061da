"""Captures of packets: both formats in both byte orders, the link types that lead to TCP, and segments that come late, twice or
not at all.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from ottla.protocol.api import ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.traffic import streams
from ottla.traffic.capture import TcpSegment, packets_of, segment_of
from ottla.traffic.entries import EntryKind, TrafficFileError
from tests.ottla.conftest import run_here

CLIENT, BROKER = (bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 9092)
SYN, ACK, FIN = 2, 16, 1


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def request(correlation_id: int, group: str = "g") -> bytes:
    body = encode(HeartbeatRequest(group), 4)
    return encode_request_header(ApiKey.HEARTBEAT, 4, correlation_id, "c") + body


def response(correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big") + b"\0" + encode(HeartbeatResponse(), 4)


def tcp(source: int, target: int, sequence: int, flags: int, data: bytes) -> bytes:
    return pack(">HHIIBBHHH", source, target, sequence, 0, 5 << 4, flags, 0, 0, 0) + data


def packet(sequence: int, data: bytes = b"", flags: int = ACK, *, back: bool = False, ip: int = 4) -> bytes:
    """An IP packet."""
    (source, sport), (target, tport) = (BROKER, CLIENT) if back else (CLIENT, BROKER)
    segment = tcp(sport, tport, sequence % 2**32, flags, data)
    if ip == 4:
        return pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0, source, target) + segment
    options = bytes([6, 0, 0, 0, 0, 0, 0, 0])  # an option of hop by hop
    head = pack(">IHBB16s16s", 6 << 28, 8 + len(segment), 0, 64, source.rjust(16, b"\1"), target.rjust(16, b"\1"))
    return head + options + segment


def ethernet(data: bytes, *vlans: int) -> bytes:
    kind = b"\x08\0" if data[0] >> 4 == 4 else b"\x86\xdd"
    return bytes(12) + b"".join(b"\x81\0" + vlan.to_bytes(2, "big") for vlan in vlans) + kind + data


def pcap(*packets: bytes, order: str = "<", link: int = 1, nanoseconds: bool = False) -> bytes:
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    head = pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262_144, link)
    part = 5_000_000 if nanoseconds else 5_000
    return head + b"".join(pack(f"{order}IIII", 1000 + i, part, len(p), len(p)) + p for i, p in enumerate(packets))


def pcapng(*packets: bytes, order: str = "<", link: int = 1) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return pack(f"{order}II", kind, 12 + len(body)) + body + pack(f"{order}I", 12 + len(body))

    nanoseconds = pack(f"{order}HHBxxx", 9, 1, 9) + bytes(4)
    out = block(0x0A0D0D0A, pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, pack(f"{order}HHI", link, 0, 0) + nanoseconds) + block(0x0BAD, b"of another kind")
    for i, each in enumerate(packets):
        at = (1000 + i) * 10**9 + 5_000_000
        out += block(6, pack(f"{order}IIIII", 0, at >> 32, at & 0xFFFF_FFFF, len(each), len(each)) + each)
    return out


def exchange(link_header: bytes = b"", ip: int = 4) -> list[bytes]:
    """A handshake, a request and its response."""
    there, back = framed(request(7)), framed(response(7))
    return [
        packet(99, flags=SYN, ip=ip),
        packet(499, flags=SYN | ACK, back=True, ip=ip),
        packet(100, there, ip=ip),
        packet(500, back, back=True, ip=ip),
        packet(100 + len(there), flags=ACK | FIN, ip=ip),
    ]


def segments(data: bytes) -> Iterator[TcpSegment]:
    return (found for each in packets_of(io.BytesIO(data).read, "f") if (found := segment_of(each)) is not None)


def kinds(data: bytes, notes: list[str] | None = None) -> list[EntryKind]:
    said = [] if notes is None else notes
    return [entry.kind for entry in streams.entries_of(segments(data), said.append)]


WHOLE = [EntryKind.OPENED, EntryKind.REQUEST, EntryKind.RESPONSE]


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_formats_in_both_byte_orders(order: str) -> None:
    packets = [ethernet(each) for each in exchange()]
    for data in (
        pcap(*packets, order=order),
        pcap(*packets, order=order, nanoseconds=True),
        pcapng(*packets, order=order),
    ):
        found = list(streams.entries_of(segments(data), pytest.fail))
        assert [entry.kind for entry in found] == WHOLE
        assert [entry.time_us for entry in found] == [1_000_005_000, 1_002_005_000, 1_003_005_000]
        assert bytes(found[1].frame) == request(7)


@pytest.mark.parametrize("ip", [4, 6])
@pytest.mark.parametrize(
    ("link", "header"),
    [
        (1, None),
        (113, bytes(14)),
        (276, None),
        (0, b"\2\0\0\0"),
        (101, b""),
    ],
)
def test_each_way_to_tcp(link: int, header: bytes | None, ip: int) -> None:
    kind = b"\x08\0" if ip == 4 else b"\x86\xdd"
    if link == 1:
        packets = [ethernet(each, 3, 4) for each in exchange(ip=ip)]
    elif link == 276:
        packets = [kind + bytes(18) + each for each in exchange(ip=ip)]
    elif link == 113:
        packets = [bytes(14) + kind + each for each in exchange(ip=ip)]
    else:
        packets = [(header or b"") + each for each in exchange(ip=ip)]
    assert kinds(pcap(*packets, link=link)) == WHOLE


def test_segments_that_come_late_or_twice_are_put_in_order() -> None:
    start = 2**32 - 20  # sequence numbers wrap within the first request
    data = b"".join(framed(request(number, "g" * 50)) for number in range(20))
    pieces = [(at, data[at : at + 30]) for at in range(0, len(data), 30)]
    overlapping = [(at, data[at : at + 45]) for at in range(0, len(data), 90)]
    for seed in range(20):
        shuffled = pieces + overlapping
        random.Random(seed).shuffle(shuffled)
        packets = [packet(start - 1, flags=SYN), *(packet(start + at, piece) for at, piece in shuffled)]
        found = streams.entries_of(segments(pcap(*packets, link=101)), pytest.fail)
        requests = [bytes(entry.frame) for entry in found if entry.kind is EntryKind.REQUEST]
        assert requests == [request(number, "g" * 50) for number in range(20)]


def test_a_gap_ends_its_direction_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AHEAD_BYTES_MAX", 100)
    one = framed(request(1))
    packets = [
        packet(0, one),
        *(packet(2000 + i * 50, bytes(50)) for i in range(4)),
        packet(700, framed(response(1)), back=True),
    ]
    notes: list[str] = []
    assert kinds(pcap(*packets, link=101), notes) == WHOLE
    assert notes == ["connection 1, requests: the capture has lost packets; the rest is left out"]


def test_a_packet_that_was_cut_short_is_a_gap() -> None:
    cut = packet(len(framed(request(1))), framed(request(2)))[:-5]
    notes: list[str] = []
    data = pcap(packet(0, framed(request(1))), cut, link=101)
    assert kinds(data, notes) == [EntryKind.OPENED, EntryKind.REQUEST]
    assert "cut a packet short" in notes[0]


def test_requests_that_are_never_answered_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "UNANSWERED_MAX", 2)
    asked = b"".join(framed(request(number)) for number in range(3))
    answered = b"".join(framed(response(number)) for number in range(3))
    found = kinds(pcap(packet(0, asked), packet(0, answered, back=True), link=101))
    assert found.count(EntryKind.REQUEST) == 3 and found.count(EntryKind.RESPONSE) == 2


def test_other_traffic_and_garbage_have_no_entries() -> None:
    udp = bytearray(ethernet(packet(0, b"x")))
    udp[23] = 17
    rng = random.Random(5)
    garbage = [rng.randbytes(rng.randrange(80)) for _ in range(200)]
    http = ethernet(packet(0, b"GET / HTTP/1.1\r\n\r\n"))
    assert kinds(pcap(bytes(udp), *garbage)) == []
    assert kinds(pcap(http)) == [EntryKind.OPENED]


def test_a_capture_that_is_cut_off_or_damaged_fails_with_a_sentence_or_ends() -> None:
    for whole in (pcap(*map(ethernet, exchange())), pcapng(*map(ethernet, exchange()))):
        for end in range(4, len(whole)):
            try:
                found = kinds(whole[:end])
            except TrafficFileError:
                continue
            assert found == WHOLE[: len(found)]
        for at in range(4, len(whole)):
            try:
                kinds(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            except TrafficFileError:
                continue


def test_the_command_prints_a_capture_without_its_secrets(tmp_path: Path) -> None:
    login = encode_request_header(ApiKey.SASL_AUTHENTICATE, 2, 1, "c") + encode(SaslAuthenticateRequest(b"hunter2"), 2)
    handshake = encode_request_header(ApiKey.SASL_HANDSHAKE, 0, 2, "c") + b"\0\5PLAIN"
    data = b"".join(map(framed, (login, handshake, b"\0alice\0hunter2", request(3))))
    file = tmp_path / "f.pcap"
    file.write_bytes(pcap(packet(0, data), link=101))
    done = run_here("traffic", str(file), "-o", "json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row.get("api") for row in rows] == [None, "SaslAuthenticate", "SaslHandshake", "Heartbeat"]
    assert rows[1]["masked"] and b"hunter2".hex() not in done.out and "aHVudGVyMg" not in done.out
    file.write_bytes(pcap()[:20])
    done = run_here("traffic", str(file))
    assert (done.code, done.out) == (2, "") and "ends in its header" in done.err
