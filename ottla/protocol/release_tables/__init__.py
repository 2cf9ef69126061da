"""Releases of Apache Kafka before the newest one here, a table each: `python -m tools.releases` makes them, and `releases.py` reads them."""

from __future__ import annotations

from ottla.protocol.release_tables import v2_1, v2_4, v2_8, v3_0, v3_3, v3_5, v3_7, v3_9, v4_0, v4_1, v4_2, v4_3

TABLES = {
    "4.3.1": v4_3.TABLE,
    "4.2.0": v4_2.TABLE,
    "4.1.1": v4_1.TABLE,
    "4.0.2": v4_0.TABLE,
    "3.9.1": v3_9.TABLE,
    "3.7.2": v3_7.TABLE,
    "3.5.2": v3_5.TABLE,
    "3.3.2": v3_3.TABLE,
    "3.0.2": v3_0.TABLE,
    "2.8.2": v2_8.TABLE,
    "2.4.1": v2_4.TABLE,
    "2.1.1": v2_1.TABLE,
}
