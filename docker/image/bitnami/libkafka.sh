# Sourced by scripts that use functions of the bitnami image (kafka_start_bg and its like), which are not here.
echo "libkafka.sh: this image has no functions of bitnami's; use the tools in /opt/bitnami/kafka/bin" >&2
return 1 2>/dev/null || exit 1
