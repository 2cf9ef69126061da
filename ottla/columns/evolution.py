"""The columns of a table follow those of its values, by one rule: fields are added, numbers widen, a field that is dropped
stays.

added field                     a new nullable column, also inside of a struct
int -> long, float -> double    the wider type; a number that becomes narrower again stays wide
dropped field                   the column stays, null from then on
all else                        no such table: the values are rejected
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

#: The types that a column's type may widen to.
WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


class _Unlike(Exception):
    pass


def evolved(schema: pa.Schema, fields: Sequence[pa.Field]) -> pa.Schema | str:
    """Return the table's schema with the fields that the values add, or the reason why it cannot have them.

    Old columns keep their positions.
    """
    try:
        return pa.schema(_merged([*schema], fields, ""))
    except _Unlike as fault:
        return str(fault)


def _merged(old: Sequence[pa.Field], new: Iterable[pa.Field], path: str) -> list[pa.Field]:
    found = {field.name: field for field in old}
    by_case = {field.name.lower(): field.name for field in old}
    for field in new:
        name = field.name
        known = found.get(name)
        if known is None:
            if name.lower() in by_case:
                raise _Unlike(f"field {path}{name} differs from {path}{by_case[name.lower()]} by capital letters alone")
            found[name] = pa.field(name, field.type)
            by_case[name.lower()] = name
        else:
            found[name] = known.with_type(_type(known.type, field.type, f"{path}{name}"))
    return [*found.values()]


def _type(old: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
    if old == new or WIDER.get(new) == old:
        return old
    if WIDER.get(old) == new:
        return new
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merged([*old], [*new], f"{path}."))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(old.value_field.with_type(_type(old.value_type, new.value_type, f"{path}.element")))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(old.key_type, old.item_field.with_type(_type(old.item_type, new.item_type, f"{path}.value")))
    raise _Unlike(f"field {path} was {old}, and is {new}")
