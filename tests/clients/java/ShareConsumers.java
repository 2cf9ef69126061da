import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * KafkaShareConsumer in each way of acknowledging, on records 0 to 29 that are there. One line for each step.
 * Arguments: bootstrap servers, topic, group (its records are locked for a short time).
 */
public class ShareConsumers {
    static final Duration WAIT = Duration.ofMillis(500);
    static String bootstrap;
    static String topic;
    static String group;

    static KafkaShareConsumer<String, String> consumer(String mode) {
        KafkaShareConsumer<String, String> made = new KafkaShareConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", mode),
            new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + 60_000;
        while (found.isEmpty() && System.currentTimeMillis() < end) {
            consumer.poll(WAIT).forEach(found::add);
        }
        return found;
    }

    static String commit(KafkaShareConsumer<String, String> consumer) {
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> entry : consumer.commitSync().entrySet()) {
            if (entry.getValue().isPresent()) {
                return entry.getValue().get().toString();
            }
        }
        return "committed";
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        topic = args[1];
        group = args[2];

        Map<Integer, Integer> counts = new TreeMap<>();
        KafkaShareConsumer<String, String> explicit = consumer("explicit");
        String committed = "";
        int seen = 0;
        while (seen < 30) {
            for (ConsumerRecord<String, String> record : poll(explicit)) {
                int value = Integer.parseInt(record.value());
                AcknowledgeType type = value % 3 == 0 ? AcknowledgeType.ACCEPT : value % 3 == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT;
                explicit.acknowledge(record, record.deliveryCount().get() > 1 ? AcknowledgeType.ACCEPT : type);
                if (counts.merge(value, (int) record.deliveryCount().get(), Math::max) == 1) {
                    seen++;
                }
            }
            committed = commit(explicit);
        }
        while (counts.values().stream().filter(count -> count > 1).count() < 10) {
            for (ConsumerRecord<String, String> record : poll(explicit)) {
                counts.merge(Integer.parseInt(record.value()), (int) record.deliveryCount().get(), Math::max);
                explicit.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            committed = commit(explicit);
        }
        System.out.println("explicit " + counts + " " + committed);

        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "30"));
        }
        List<ConsumerRecord<String, String>> held = poll(explicit);
        System.out.println("held " + held.get(0).value() + " x" + held.get(0).deliveryCount().get());
        explicit.acknowledge(held.get(0), AcknowledgeType.RENEW);
        System.out.println("renewed " + commit(explicit));
        try (KafkaShareConsumer<String, String> other = consumer("implicit")) {
            List<ConsumerRecord<String, String>> late = poll(other);
            System.out.println("timed out " + late.get(0).value() + " x" + late.get(0).deliveryCount().get());
            System.out.println("implicit " + commit(other));
        }
        explicit.close();
    }
}
