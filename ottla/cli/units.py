"""Sizes, times and rates as people read them, for tables. JSON and YAML have bytes and milliseconds."""

from __future__ import annotations

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PARTS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def size_text(number: float) -> str:
    """Return a size such as `1.5 MB`, in powers of 1000, as disks and networks are sold."""
    for unit in _SIZES:
        if number < 1000 or unit == _SIZES[-1]:
            break
        number /= 1000
    return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """Return a time such as `2 h 5 min`, `1 min 3 s` or `9 s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def cell_text(column: str, value: float) -> str:
    """Return a number of a table by its column: `bytes`, `free_bytes` and `bytes_moved` are sizes."""
    return size_text(value) if "bytes" in column.split("_") and value >= 0 else str(value)


def setting_text(name: str, value: str | None) -> str | None:
    """Return the value of a setting or quota. A large one is explained: `604800000 (7 d)`, `1073741824 (1 GiB)`."""
    if value is None or not value.isdecimal():
        return value
    number, unit = int(value), name.replace("_", ".").split(".")
    if number in (INT32_MAX, INT64_MAX):
        return f"{value} (the largest value)"
    if unit[-1] in ("ms", "seconds", "minutes", "hours"):
        factor = {"ms": 0.001, "seconds": 1, "minutes": 60, "hours": 3600}[unit[-1]]
        text = _exact_duration(number * factor)
    elif "bytes" in unit or unit[-2:] == ["byte", "rate"]:
        text = _exact_size(number) + ("/s" if unit[-1] in ("rate", "second") else "")
    else:
        return value
    return value if text.split()[0] == value else f"{value} ({text})"


def _exact_duration(seconds: float) -> str:
    """Return a duration in up to three parts; one below a second is in milliseconds."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    parts, left = [], seconds
    for length, unit in _PARTS:
        count = int(left // length) if unit != "s" else round(left, 3)
        left -= count * length
        if count:
            parts.append(f"{count:g} {unit}")
    return " ".join(parts)


def _exact_size(number: int) -> str:
    """Return a size in powers of 1024 if it is a whole number of them, or else in powers of 1000."""
    count, at = number, 0
    while count and count % 1024 == 0 and at < len(_BINARY) - 1:
        count, at = count // 1024, at + 1
    return f"{count} {_BINARY[at]}" if at else size_text(number)
