"""CRC-32C, the checksum of record batches v2. It covers everything from the attributes on, not the base offset or leader epoch."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

from ottla.protocol.primitives import Buffer


def _extension() -> Callable[[Buffer], int]:
    """Loads the compiled module of the package crc32c without its `__init__`, which imports importlib.metadata and `email` to
    find its own version. That import takes 0.1 s of CPU at every start of a node or a tool."""
    package = find_spec("crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:  # another version of the package, or none: the import raises the error
        from crc32c import crc32c as whole_package

        return whole_package
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    compiled: Callable[[Buffer], int] = module.crc32c
    return compiled


#: The checksum as the unsigned number that the batch header holds. No function around it: each append calls it.
crc32c = _extension()
