"""A map that never changes: a changed copy shares all that is equal with the one before it.

Entries lie in small dicts ("shards"), chosen by the key's hash. A change copies the shards it touches and the tuple of shards, so
one of 100,000 topics costs some microseconds, and reading is two look-ups. It is written in Python so that it runs wherever Python
does: Python's own hash trie in C is not part of its public API, and the package immutables, which has one, has no wheels for
Python 3.14.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
ImageT = TypeVar("ImageT")

#: The mean number of entries in a shard at which the number of shards is multiplied by GROWTH. It is divided by GROWTH at a
#: sixteenth of this.
SHARD_ENTRIES_MAX = 128
GROWTH = 4
_MISSING: Any = object()


class _Items(ItemsView[K, V]):
    _mapping: Map[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(shard.items() for shard in self._mapping._shards)


class _Values(ValuesView[V]):
    _mapping: Map[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(shard.values() for shard in self._mapping._shards)


class Map(Mapping[K, V]):
    """An immutable map. `mutate()` returns a `MapChanges`, whose `finish()` returns the next map."""

    __slots__ = ("_len", "_mask", "_shards")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._len = 0 if entries is None else len(entries)
        self._shards = _divided([{} if entries is None else dict(entries)], self._len)
        self._mask = len(self._shards) - 1

    def __getitem__(self, key: K) -> V:
        return self._shards[hash(key) & self._mask][key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        return self._shards[hash(key) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shards[hash(key) & self._mask]

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._shards)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Map) and len(self._shards) == len(other._shards):
            return (
                self._shards == other._shards
            )  # shards that both maps share are equal without a look at their entries
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    def __repr__(self) -> str:
        return f"Map({dict(self.items())!r})"

    def mutate(self) -> MapChanges[K, V]:
        return MapChanges(self)

    def update(self, entries: Mapping[K, V]) -> Map[K, V]:
        changes = self.mutate()
        for key, value in entries.items():
            changes[key] = value
        return changes.finish()


class MapChanges(Generic[K, V]):
    """Changes on the way to the next map. The map that they began with stays as it is."""

    __slots__ = ("_before", "_copied", "_len", "_mask", "_shards")

    def __init__(self, before: Map[K, V]) -> None:
        self._before = before
        self._shards = list(before._shards)
        self._mask, self._len = before._mask, before._len
        self._copied: set[int] = set()

    def _own(self, key: K) -> dict[K, V]:
        index = hash(key) & self._mask
        if index not in self._copied:
            self._copied.add(index)
            self._shards[index] = self._shards[index].copy()
        return self._shards[index]

    def __setitem__(self, key: K, value: V) -> None:
        shard = self._own(key)
        before = len(shard)
        shard[key] = value
        self._len += len(shard) - before

    def __delitem__(self, key: K) -> None:
        del self._own(key)[key]
        self._len -= 1

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, /, default: V | D) -> V | D: ...
    def pop(self, key: K, /, default: Any = _MISSING) -> Any:
        if key not in self._shards[hash(key) & self._mask]:
            if default is _MISSING:
                raise KeyError(key)
            return default
        self._len -= 1
        return self._own(key).pop(key)

    def finish(self) -> Map[K, V]:
        """Return the next map, or the one before if nothing was changed. Nothing can be changed afterwards."""
        if not self._copied:
            return self._before
        made: Map[K, V] = Map()
        made._shards = _divided(self._shards, self._len)
        made._mask, made._len = len(made._shards) - 1, self._len
        self._shards.clear()
        return made


def _divided(shards: list[dict[K, V]], entries: int) -> tuple[dict[K, V], ...]:
    """Return the shards for this number of entries, divided again if there are too few or far too many of them."""
    wanted = len(shards)
    while entries > wanted * SHARD_ENTRIES_MAX:
        wanted *= GROWTH
    while wanted > 1 and entries < wanted * SHARD_ENTRIES_MAX // GROWTH**2:
        wanted //= GROWTH
    if wanted == len(shards):
        return tuple(shards)
    divided: tuple[dict[K, V], ...] = tuple({} for _ in range(wanted))
    for shard in shards:
        for key, value in shard.items():
            divided[hash(key) & (wanted - 1)][key] = value
    return divided


# Changes of a map by key, of which None removes the value. In maps of maps, as of configs by resource, a map without values is removed.


def changed(entries: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    """Return the map with the changes."""
    result = entries.mutate()
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result.finish()


def remove_others(entries: Map[K, V], changes: dict[K, V | None]) -> None:
    """Add the removal of all values that `changes` does not name."""
    for key in entries:
        changes.setdefault(key, None)


class MapDelta(Generic[ImageT, K, V]):
    """The changes of an image that is one map, the field `map_name`: new values by key, None if the value was removed."""

    map_name: ClassVar[str]

    def __init__(self, image: ImageT) -> None:
        self.image = image
        self.changes: dict[K, V | None] = {}

    def finish_snapshot(self) -> None:
        remove_others(getattr(self.image, self.map_name), self.changes)

    def apply(self) -> ImageT:
        image: Any = self.image
        after: ImageT = replace(image, **{self.map_name: changed(getattr(image, self.map_name), self.changes)})
        return after


def changed_maps(maps: Map[D, Map[K, V]], changes: Mapping[D, Mapping[K, V | None]]) -> Map[D, Map[K, V]]:
    return changed(maps, {owner: changed(maps.get(owner, Map()), each) or None for owner, each in changes.items()})


def remove_others_of_maps(maps: Map[D, Map[K, V]], changes: dict[D, dict[K, V | None]]) -> None:
    for owner, before in maps.items():
        remove_others(before, changes.setdefault(owner, {}))
