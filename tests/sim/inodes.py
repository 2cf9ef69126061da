"""The parts of the simulated disk: files and directories, each as programs see it and as the platters hold it.

What survives a power loss:
- of a file: the bytes of its last sync, and of every 4 KiB page changed since then any mixture of the old and the new
  512-byte sectors (pages reach the disk in any order, and may be torn); its length is the old one, the new one, or one
  in between, at the end of a page;
- of a directory: the entries of its last sync, and any prefix of the creations, renames and removals since then
  (file systems journal them in order). A new directory is such an entry of its parent. A directory's sync writes the
  journal, and with it the lengths that its files had then.
After a failed sync the kernel takes the dirty pages for clean ("fsyncgate"): a second sync succeeds and saves only what
was written after the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

PAGE_BYTES, SECTOR_BYTES = 4096, 512
POISON = b"SIGBUS!!"


@dataclass(eq=False)
class Mapped:
    """A file as a program has mapped it: after `end`, the mapping has its own memory."""

    data: bytearray
    end: int


@dataclass(eq=False)
class Inode:
    """One file: `data` is what programs see, `durable` what is on the disk."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0
    # After a failed sync: the content that the kernel believes to be on the disk, and the pages written since with the same
    # bytes.
    believed: bytes | None = None
    touched: set[int] = field(default_factory=set)
    # The mapped contents: views of these may exist although `data` is another object by now.
    mapped: list[Mapped] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)  # ranges that the medium has lost

    def truncate(self, size: int) -> None:
        """Views keep their pages up to the end of the file.

        A real process that looks at a page behind the end is killed: here the page has poison.
        """
        for mapped in self.mapped:
            if is_held(mapped.data) and mapped.end > size:
                mapped.data[size : mapped.end] = poison(mapped.end - size)
        self.data = bytearray(self.data[:size]).ljust(size, b"\0")

    def sync(self) -> None:
        self.durable = bytes(self._reachable())
        self.believed = bytes(self.data) if self.durable != self.data else None
        self.touched.clear()

    def commit_length(self) -> None:
        """The journal was written: the disk has the file's length, but not its bytes, which then read as zeros."""
        length = len(self.data)
        if len(self.durable) != length:
            self.durable = self.durable[:length].ljust(length, b"\0")

    def fail_sync(self, rng: random.Random) -> None:
        """Some pages reached the disk, and from now on all count as clean."""
        self.durable = bytes(_mixture(self.durable, self._reachable(), rng))
        self.believed = bytes(self.data)
        self.touched.clear()

    def touch(self, start: int, end: int) -> None:
        """These bytes were written once more with the same values: their pages are dirty."""
        if self.believed is not None:
            self.touched.update(range(start // PAGE_BYTES, -(-end // PAGE_BYTES)))

    def _reachable(self) -> bytearray:
        """Return the bytes that would be on the disk if every dirty page were written now."""
        if self.believed is None:
            return self.data
        kept = bytearray(self.durable[: len(self.data)].ljust(len(self.data), b"\0"))
        for page in range(0, len(kept), PAGE_BYTES):
            piece = self.data[page : page + PAGE_BYTES]
            if piece != self.believed[page : page + PAGE_BYTES] or page // PAGE_BYTES in self.touched:
                kept[page : page + PAGE_BYTES] = piece
        return kept

    def after_power_loss(self, rng: random.Random) -> None:
        """Keep those of the unsynced pages that chance has brought to the disk."""
        self.data = _mixture(self.durable, self._reachable(), rng)
        self.durable = bytes(self.data)
        self.believed = None
        self.touched.clear()

    def detach(self) -> None:
        """The process that mapped the file has ended: its later writes through views have no effect."""
        self.data = bytearray(self.data)
        self.mapped = []


def is_held(data: bytearray) -> bool:
    """Return whether a view of the file exists: such a bytearray cannot grow."""
    try:
        data.append(0)
    except BufferError:
        return True
    data.pop()
    return False


def poison(size: int) -> bytes:
    """Return bytes that stand for the signal which ends a process when it touches such a page."""
    return (POISON * (size // len(POISON) + 1))[:size]


def _mixture(old: bytes, new: bytearray, rng: random.Random) -> bytearray:
    size = _size_between(len(old), len(new), rng)
    kept = bytearray(old[:size].ljust(size, b"\0"))
    if kept == new:
        return kept
    for page in range(0, size, PAGE_BYTES):
        if new[page : page + PAGE_BYTES] == kept[page : page + PAGE_BYTES]:
            continue
        fate = rng.random()
        for sector in range(page, min(page + PAGE_BYTES, size), SECTOR_BYTES):
            if fate < 0.4 or (fate < 0.6 and rng.random() < 0.5):  # the whole page, or a torn one
                piece = new[sector : min(sector + SECTOR_BYTES, size)]
                kept[sector : sector + len(piece)] = piece
    return kept


def _size_between(old: int, new: int, rng: random.Random) -> int:
    if old == new:
        return new
    ends = range(min(old, new) // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES, max(old, new), PAGE_BYTES)
    return rng.choice(ends) if ends and rng.random() < 0.2 else rng.choice((old, new))


Entries: TypeAlias = "dict[str, Inode | Directory]"


@dataclass(eq=False)
class Directory:
    """Names in one directory: `entries` now, `durable` at its last sync, and `journal`, the changes since then."""

    entries: Entries = field(default_factory=dict)
    durable: Entries = field(default_factory=dict)
    journal: list[Callable[[Entries], None]] = field(default_factory=list)

    def put(self, name: str, node: Inode | Directory) -> None:
        self._change(lambda entries: entries.__setitem__(name, node))

    def drop(self, name: str) -> None:
        self._change(lambda entries: entries.pop(name, None) and None)

    def rename(self, old: str, new: str) -> None:
        node = self.entries[old]

        def step(entries: Entries) -> None:
            entries.pop(old, None)
            entries[new] = node

        self._change(step)

    def _change(self, step: Callable[[Entries], None]) -> None:
        step(self.entries)
        self.journal.append(step)

    def sync(self) -> None:
        self.durable, self.journal = dict(self.entries), []
        for node in self.entries.values():
            if isinstance(node, Inode):
                node.commit_length()

    def after_power_loss(self, rng: random.Random) -> None:
        for step in self.journal[: rng.randint(0, len(self.journal))]:
            step(self.durable)
        self.entries, self.journal = dict(self.durable), []
        for node in self.entries.values():
            node.after_power_loss(rng)

    def files(self) -> Iterator[Inode]:
        for node in self.entries.values():
            if isinstance(node, Inode):
                yield node
            else:
                yield from node.files()
