#!/bin/sh
# As /opt/bitnami/scripts/kafka/entrypoint.sh: runs what it is given.
exec "$@"
