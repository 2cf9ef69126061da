import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic from an offset, or from a time ("@" and milliseconds), up to an end, with read_committed: "offset value" per line. */
public final class TieredReader {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "none");
        TopicPartition place = new TopicPartition(args[1], 0);
        long end = Long.parseLong(args[3]);
        StringBuilder found = new StringBuilder();
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            long start = args[2].startsWith("@")
                ? consumer.offsetsForTimes(Map.of(place, Long.parseLong(args[2].substring(1)))).get(place).offset()
                : Long.parseLong(args[2]);
            consumer.seek(place, start);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    found.append(each.offset()).append(' ').append(new String(each.value(), 0, 6)).append('\n');
                }
            }
        }
        System.out.print(found);
    }
}
