#!/bin/sh
# Installs a wheel of Ottla into an empty environment without a compiler's help, starts a node of it, and asks it for its topics.
#   sh tools/try_install.sh dist/ottla-*.whl
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: "$1"
cd "$folder"
"$folder/env/bin/ottla" --version
"$folder/env/bin/python" -c '
from ottla.testing import Cluster
with Cluster(1) as cluster:
    print("a node of", [broker.node_id for broker in cluster.metadata().brokers], "answers")
'
