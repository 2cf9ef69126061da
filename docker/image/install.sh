#!/bin/sh
# Puts scripts, tools and directories where users of three Kafka images look for them. Runs once, as the image is built;
# PREFIX is for tests.
set -eu
here=$(dirname "$0")
prefix=${PREFIX:-}

# The tools, under every name: kafka-topics and kafka-topics.sh, in every image's directory.
mkdir -p "$prefix/opt/kafka/bin" "$prefix/opt/kafka/config" "$prefix/opt/bitnami/kafka/bin" "$prefix/usr/local/bin" "$prefix/usr/bin"
while read -r tool; do
    install -m 755 "$here/tool" "$prefix/opt/kafka/bin/$tool.sh"
    ln -sf "/opt/kafka/bin/$tool.sh" "$prefix/opt/bitnami/kafka/bin/$tool.sh"
    ln -sf "/opt/kafka/bin/$tool.sh" "$prefix/usr/bin/$tool"
done <"$here/tools.txt"

# Entry points.
install -D -m 755 "$here/apache/run" "$prefix/etc/kafka/docker/run"
for script in bash-config configure launch run; do
    install -D -m 755 "$here/confluent/$script" "$prefix/etc/confluent/docker/$script"
done
for script in entrypoint.sh run.sh; do
    install -D -m 755 "$here/bitnami/$script" "$prefix/opt/bitnami/scripts/kafka/$script"
done
install -m 755 "$here/cub" "$prefix/usr/local/bin/cub"
ln -sf cub "$prefix/usr/local/bin/ub"
install -m 755 "$here/ottla-health" "$prefix/usr/local/bin/ottla-health"

# Directories that are mounted over or written to. New named volumes take their owner from here.
for directory in /etc/kafka /etc/kafka/secrets /etc/confluent/docker /var/lib/kafka /var/lib/kafka/data /mnt/shared/config \
    /bitnami/kafka /bitnami/kafka/data /bitnami/kafka/config /opt/bitnami/kafka/config/certs; do
    mkdir -p "$prefix$directory"
    [ -n "$prefix" ] || chown 1000:0 "$directory"
    chmod g+rwx "$prefix$directory"
done
[ -n "$prefix" ] || chown -R 1000:0 /etc/confluent/docker
