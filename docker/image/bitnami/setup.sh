#!/bin/sh
# As /opt/bitnami/scripts/kafka/setup.sh: checks the environment and writes the configuration.
exec ottla container configure --dialect bitnami
