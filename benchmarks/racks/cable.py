"""The cable between racks: carries frames from one rack to another after a delay, and loses some: `python -m benchmarks.racks.cable`.

It is a process of its own in the namespace where the cables of all racks end. `tc netem` would do the same in the kernel, but is not
in every kernel: that of the machine for which this was written has none. Frames are read with the kernel's own header for a virtual
network card, so that segments stay as large as TCP has made them, and each costs one system call.

    --delay-ms N    one way
    --loss F        share of frames that are lost
    UPLINK ...      network devices, by rack from 1

A line on standard input names the racks that are cut off from now on, an empty one mends all. It ends with its input.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from random import Random

#: linux/if_packet.h
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 3
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32
BUFFER_BYTES = 64 << 20
#: struct virtio_net_hdr, which precedes each frame.
HEADER_BYTES = 10
TARGET_RACK, SOURCE_RACK = HEADER_BYTES + 5, HEADER_BYTES + 11
FRAME_BYTES_MAX = HEADER_BYTES + 14 + (1 << 16)
#: A rack's network card has the address OURS:00:00:00:00:RACK. A group's address, as of IPv6, begins with an odd byte.
OURS = 0x02
#: The number of frames that are read from one rack, or sent when due, before the next rack has its turn.
FRAMES_AT_ONCE = 64
NICE = -10


def hardware_address(rack: int) -> str:
    return f"{OURS:02x}:00:00:00:00:{rack:02x}"


class Cable:
    """Frames under way, which arrive in the order in which they were sent."""

    def __init__(self, delay_s: float, loss: float, rng: Random) -> None:
        self.cut: frozenset[int] = frozenset()
        self.carried = self.lost = 0
        self._delay_s, self._loss, self._rng = delay_s, loss, rng
        self._under_way = deque[tuple[float, int, bytes]]()

    def take(self, frame: bytes, now_s: float) -> None:
        if len(frame) <= SOURCE_RACK or frame[HEADER_BYTES] != OURS:
            return
        source, target = frame[SOURCE_RACK], frame[TARGET_RACK]
        if source in self.cut or target in self.cut or self._rng.random() < self._loss:
            self.lost += 1
        else:
            self.carried += 1
            self._under_way.append((now_s + self._delay_s, target, frame))

    def arrived(self, now_s: float) -> Iterator[tuple[int, bytes]]:
        """Yield the rack and the frame of each arrival that is due."""
        while self._under_way and self._under_way[0][0] <= now_s:
            _, target, frame = self._under_way.popleft()
            if target not in self.cut:
                yield target, frame

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the next arrival is due; None if there is none."""
        return max(0.0, self._under_way[0][0] - now_s) if self._under_way else None


def uplink_socket(device: str) -> socket.socket:
    uplink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    uplink.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    uplink.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
        uplink.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    uplink.bind((device, 0))
    uplink.setblocking(False)
    return uplink


def carry(cable: Cable, devices: Iterable[str]) -> None:
    uplinks = {rack: uplink_socket(device) for rack, device in enumerate(devices, 1)}
    by_descriptor = {each.fileno(): each for each in uplinks.values()}
    control = sys.stdin.fileno()
    print("ready", flush=True)
    while True:
        # select and not epoll, whose timeouts are whole milliseconds
        ready, _, _ = select.select([*by_descriptor, control], [], [], cable.wait_s(time.monotonic()))
        if control in ready:
            line = sys.stdin.readline()
            if not line:
                return
            cable.cut = frozenset(map(int, line.split()))
        for uplink in (by_descriptor[each] for each in ready if each != control):
            for _ in range(FRAMES_AT_ONCE):
                try:
                    frame = uplink.recv(FRAME_BYTES_MAX)
                except BlockingIOError:
                    break
                cable.take(frame, time.monotonic())
        for rack, frame in cable.arrived(time.monotonic()):
            try:
                uplinks[rack].send(frame)
            except OSError:  # the rack's device has no room, or is gone
                cable.lost += 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.racks.cable", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("devices", nargs="+", metavar="UPLINK")
    parser.add_argument("--delay-ms", type=float, required=True)
    parser.add_argument("--loss", type=float, required=True)
    arguments = parser.parse_args()
    os.nice(NICE)
    cable = Cable(arguments.delay_ms / 1e3, arguments.loss, Random(1))
    carry(cable, arguments.devices)
    print(f"{cable.carried} {cable.lost}", flush=True)


if __name__ == "__main__":
    main()
