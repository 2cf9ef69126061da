"""Captures of packets as traffic: the files of libpcap and pcapng, and the TCP segments in them.

    pcap      a header with the byte order and the link type, then packets of one interface
    pcapng    blocks; a section has its byte order, and interfaces with a link type each (an Interface Description before its packets)

Only packets with TCP are read: Ethernet with VLAN tags, Linux cooked captures, loopback and raw IP; IPv4 and IPv6 without
fragments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct, unpack_from
from struct import error as struct_error
from typing import NamedTuple

from ottla.client.failures import Kind
from ottla.traffic.entries import TrafficFileError

#: The magic numbers of a pcap, by the first bytes of a file: the byte order, and ticks in a second.
PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 10**6),
    b"\xa1\xb2\xc3\xd4": (">", 10**6),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9),
    b"\xa1\xb2\x3c\x4d": (">", 10**9),
}
PCAPNG = b"\x0a\x0d\x0d\x0a"
#: A larger packet or block means that the file is damaged: snapshot lengths are at most 256 KiB.
BLOCK_BYTES_MAX = 16 * 1024 * 1024
_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_TICKS_OPTION = 9
#: Link types, and the offset of the EtherType. None: the IP version is in the first byte after this many bytes.
_ETHERNET, _NULL, _LOOP, _RAW, _SLL, _SLL2 = 1, 0, 108, (12, 14, 101, 228, 229), 113, 276
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLANS = (0x8100, 0x88A8)
_TCP = 6
#: The options of IPv6 that may stand before TCP: hop by hop, routing, destination.
_IPV6_OPTIONS = (0, 43, 60)

Read = Callable[[int], bytes]


class Packet(NamedTuple):
    """The bytes of a packet, its time in microseconds since the epoch, and its link type."""

    time_us: int
    link: int
    data: bytes


class TcpSegment(NamedTuple):
    """A TCP segment. Its ends are addresses as text."""

    time_us: int
    source: str
    target: str
    sequence: int
    begins: bool
    acknowledges: bool
    ends: bool
    data: bytes
    #: The bytes of the segment that the capture has cut off.
    missing: int


def is_capture(start: bytes) -> bool:
    """Return whether a file begins as a capture does. Four bytes are needed."""
    return start[:4] in PCAP or start[:4] == PCAPNG


def packets_of(read: Read, name: str) -> Iterator[Packet]:
    """Yield the packets of a capture. A packet that is cut off ends it.

    Raises:
        TrafficFileError: it is damaged.
    """
    start = read(4)
    if start == PCAPNG:
        return _of_pcapng(read, name)
    if start not in PCAP:
        raise TrafficFileError(f"{name} is no capture", None, Kind.WRONG)
    order, ticks = PCAP[start]
    return _of_pcap(read, name, order, ticks)


def _of_pcap(read: Read, name: str, order: str, ticks: int) -> Iterator[Packet]:
    head = read(20)
    if len(head) < 20:
        raise TrafficFileError(f"{name} ends in its header", None, Kind.WRONG)
    link = Struct(f"{order}I").unpack_from(head, 16)[0] & 0x0FFF_FFFF
    record = Struct(f"{order}IIII")
    while len(start := read(record.size)) == record.size:
        seconds, part, size, _ = record.unpack(start)
        if size > BLOCK_BYTES_MAX:
            raise TrafficFileError(f"{name} is damaged: a packet of {size} bytes")
        yield Packet(seconds * 10**6 + part * 10**6 // ticks, link, read(size))


def _of_pcapng(read: Read, name: str) -> Iterator[Packet]:
    order = "<"
    interfaces: list[tuple[int, int]] = []
    kind_bytes = PCAPNG
    while len(kind_bytes) == 4:
        size_bytes = read(4)
        first = b""
        if kind_bytes == PCAPNG:
            first = read(4)
            order = "<" if first == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        if len(size_bytes) < 4:
            return
        (size,) = unpack_from(f"{order}I", size_bytes)
        if not 12 <= size <= BLOCK_BYTES_MAX or size % 4:
            raise TrafficFileError(f"{name} is damaged: a block of {size} bytes")
        body = first + read(size - 8 - len(first))
        if len(body) < size - 8:
            return
        (kind,) = unpack_from(f"{order}I", kind_bytes)
        try:
            if kind == _INTERFACE:
                interfaces.append((unpack_from(f"{order}H", body)[0], _ticks(body[8:-4], order)))
            elif kind == _ENHANCED:
                number, high, low, kept, _ = unpack_from(f"{order}IIIII", body)
                link, ticks = interfaces[number]
                yield Packet((high << 32 | low) * 10**6 // ticks, link, body[20 : 20 + kept])
            elif kind == _SIMPLE:
                yield Packet(0, interfaces[0][0], body[4:-4])
        except (struct_error, IndexError):
            raise TrafficFileError(f"{name} is damaged: a packet without its interface") from None
        kind_bytes = read(4)


def _ticks(options: bytes, order: str) -> int:
    """Return the ticks in a second, from the option if_tsresol; without it they are microseconds."""
    pos = 0
    while pos + 4 <= len(options):
        code, size = unpack_from(f"{order}HH", options, pos)
        if code == _TICKS_OPTION and size == 1 and pos + 4 < len(options):
            exponent = options[pos + 4]
            ticks: int = 2 ** (exponent & 0x7F) if exponent & 0x80 else 10 ** min(exponent, 18)
            return ticks
        pos += 4 + (size + 3 & ~3)
    return 10**6


def segment_of(packet: Packet) -> TcpSegment | None:
    """Return the TCP segment of a packet, or None for another packet."""
    try:
        kind, pos = _network(packet)
        data = packet.data
        if kind == _IPV4 and data[pos] >> 4 == 4:
            size, fragment, protocol = unpack_from(">2xH2xHxB", data, pos)
            if protocol != _TCP or fragment & 0x3FFF:
                return None
            ends = [".".join(map(str, data[at : at + 4])) for at in (pos + 12, pos + 16)]
            start = pos + (data[pos] & 15) * 4
            # The network card fills in a size of 0 only later.
            return _tcp(packet, start, pos + size if size else len(data), ends)
        if kind == _IPV6 and data[pos] >> 4 == 6:
            size, protocol = unpack_from(">4xHB", data, pos)
            ends = [f"[{data[at : at + 16].hex(':', 2)}]" for at in (pos + 8, pos + 24)]
            start = pos + 40
            while protocol in _IPV6_OPTIONS:
                protocol, start = data[start], start + 8 + data[start + 1] * 8
            return _tcp(packet, start, pos + 40 + size if size else len(data), ends) if protocol == _TCP else None
    except (struct_error, IndexError):
        pass  # the packet is cut off, or malformed
    return None


def _network(packet: Packet) -> tuple[int, int]:
    """Return the EtherType, and the offset of the network header."""
    data, link = packet.data, packet.link
    if link == _ETHERNET:
        pos = 12
        while (kind := unpack_from(">H", data, pos)[0]) in _VLANS:
            pos += 4
        return kind, pos + 2
    if link == _SLL:
        return unpack_from(">H", data, 14)[0], 16
    if link == _SLL2:
        return unpack_from(">H", data, 0)[0], 20
    pos = 4 if link in (_NULL, _LOOP) else 0
    if pos or link in _RAW:
        return (_IPV4 if data[pos] >> 4 == 4 else _IPV6), pos
    return 0, 0


def _tcp(packet: Packet, start: int, end: int, ends: list[str]) -> TcpSegment:
    data = packet.data
    source, target, sequence, offset, flags = unpack_from(">HHI4xBB", data, start)
    body = data[start + (offset >> 4) * 4 : end]
    missing = max(0, end - len(data))
    return TcpSegment(
        packet.time_us, f"{ends[0]}:{source}", f"{ends[1]}:{target}", sequence,
        bool(flags & 2), bool(flags & 16), bool(flags & 5), body, missing,
    )  # fmt: skip
