#!/bin/sh
# Puts scripts, tools and directories where users of three Kafka images look for them. Runs once, as the image is built;
# PREFIX is for tests.
set -eu
here=$(dirname "$0")
prefix=${PREFIX:-}
python=${OTTLA_PYTHON:-/opt/ottla/bin/python}

mkdir -p "$prefix/opt/kafka/bin" "$prefix/opt/kafka/config" "$prefix/opt/bitnami/kafka/bin" "$prefix/usr/local/bin" "$prefix/usr/bin"

# Under every name: kafka-topics and kafka-topics.sh, in every image's directory.
put() { # SCRIPT NAME
    install -m 755 "$here/$1" "$prefix/opt/kafka/bin/$2.sh"
    ln -sf "/opt/kafka/bin/$2.sh" "$prefix/opt/bitnami/kafka/bin/$2.sh"
    ln -sf "/opt/kafka/bin/$2.sh" "$prefix/usr/bin/$2"
}
for tool in $("$python" -P -c 'from ottla.cli.shims.__main__ import TOOLS; print(*TOOLS)'); do
    [ "$tool" = create-topics ] || put tool "$tool" # what calls it is wurstmeister's script of that name
done
put run-class kafka-run-class
for name in connect-standalone connect-distributed connect-mirror-maker zookeeper-server-start zookeeper-shell; do
    put not-here "$name"
done

# Entry points.
install -D -m 755 "$here/apache/run" "$prefix/etc/kafka/docker/run"
for script in bash-config configure ensure launch run; do
    install -D -m 755 "$here/confluent/$script" "$prefix/etc/confluent/docker/$script"
done
for script in entrypoint.sh run.sh setup.sh; do
    install -D -m 755 "$here/bitnami/$script" "$prefix/opt/bitnami/scripts/kafka/$script"
done
install -m 755 "$here/bitnami/libkafka.sh" "$prefix/opt/bitnami/scripts/libkafka.sh"
for script in start-kafka.sh create-topics.sh; do
    install -m 755 "$here/wurstmeister/$script" "$prefix/usr/bin/$script"
done
for script in cub curl ottla-health; do
    install -m 755 "$here/$script" "$prefix/usr/local/bin/$script"
done
ln -sf cub "$prefix/usr/local/bin/ub"

# Directories that are mounted over or written to. New named volumes take their owner from here.
for directory in /etc/kafka /etc/kafka/secrets /etc/confluent/docker /var/lib/kafka /var/lib/kafka/data /mnt/shared/config \
    /bitnami/kafka /bitnami/kafka/data /bitnami/kafka/config /opt/bitnami/kafka/config/certs; do
    mkdir -p "$prefix$directory"
    [ -n "$prefix" ] || chown 1000:0 "$directory"
    chmod g+rwx "$prefix$directory"
done
[ -n "$prefix" ] || chown -R 1000:0 /etc/confluent/docker
