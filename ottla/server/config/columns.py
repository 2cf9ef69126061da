"""Short names for the columns of the tables of configurations (`table` in key.py)."""

from __future__ import annotations

from ottla.server.config.key import Importance, Scope, Type

BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Scope.PER_BROKER, Scope.CLUSTER_WIDE
