#!/bin/sh
# As in wurstmeister's image: waits for the broker, and creates the topics of KAFKA_CREATE_TOPICS.
[ -n "${KAFKA_CREATE_TOPICS:-}" ] || exit 0
servers=${KAFKA_BOOTSTRAP_SERVERS:-localhost:${KAFKA_PORT:-9092}}
exec "${OTTLA_PYTHON:-/opt/ottla/bin/python}" -P -m ottla.cli.shims create-topics "$servers" "$KAFKA_CREATE_TOPICS"
