"""Settings of one component, as a dataclass whose fields name their properties: each is declared once, and all are read in one way.

    @dataclass(frozen=True, slots=True)
    class TransactionConfig:
        transaction_max_timeout_ms: int = setting("transaction.max.timeout.ms")

    read(TransactionConfig, configs.setting)

Type, default and rule of a property stand in the table of its kind (broker.py, own.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, TypeVar

from ottla.server.config.broker import key_of
from ottla.server.config.own import OWN_CONFIGS

T = TypeVar("T")

PROPERTY = "property"
CONVERT = "convert"


def setting(name: str, convert: Callable[[Any], Any] = lambda value: value, **default: Any) -> Any:
    """A field that is read from a property, whose default is the field's if no other `default` is given.

    `convert` makes the field's value of the property's: another unit, or an object that has it.
    """
    if not default:
        key = key_of(name) or OWN_CONFIGS[name]
        default = {"default_factory": lambda: convert(key.default)}
    return field(**default, metadata={PROPERTY: name, CONVERT: convert})


def read(kind: Callable[..., T], value_of: Callable[[str], Any], **others: Any) -> T:
    """Returns the settings by the parsed properties. Fields that name no property are `others`, or keep their defaults."""
    named: Any = kind
    settings = {
        each.name: each.metadata[CONVERT](value_of(each.metadata[PROPERTY]))
        for each in fields(named)
        if PROPERTY in each.metadata
    }
    return kind(**settings, **others)
