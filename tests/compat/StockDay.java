// The day of the stock Java clients: admin, producer, consumers of both protocols, transactions, and a broker that restarts meanwhile.
// stock_day.py has the same for Python's, and the words "restart" and an empty line by which the two programs talk.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;

public class StockDay {
    static final int COUNT = 10;
    static final int SECONDS_MAX = 60;
    static final String STRING = "org.apache.kafka.common.serialization.String";

    static String bootstrap, topic;

    static Properties settings(String... pairs) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }

    static KafkaProducer<String, String> producer(String... pairs) {
        Properties all = settings(pairs);
        all.put("key.serializer", STRING + "Serializer");
        all.put("value.serializer", STRING + "Serializer");
        return new KafkaProducer<>(all);
    }

    static KafkaConsumer<String, String> consumer(String protocol) {
        Properties all = settings("group.protocol", protocol, "group.id", topic + "-" + protocol, "auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.put("key.deserializer", STRING + "Deserializer");
        all.put("value.deserializer", STRING + "Deserializer");
        KafkaConsumer<String, String> made = new KafkaConsumer<>(all);
        made.subscribe(List.of(topic));
        return made;
    }

    static boolean read(KafkaConsumer<String, String> consumer, String value) {
        boolean found = false;
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) found |= each.value().equals(value);
        return found;
    }

    static ProducerRecord<String, String> record(String value) {
        return new ProducerRecord<>(topic, value);
    }

    static void work(String name, KafkaProducer<String, String> producer, KafkaProducer<String, String> transactional,
            List<KafkaConsumer<String, String>> consumers) throws Exception {
        for (int i = 0; i < COUNT; i++) producer.send(record(name + i));
        producer.send(record(name)).get(SECONDS_MAX, TimeUnit.SECONDS);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
        for (KafkaConsumer<String, String> each : consumers) {
            while (!read(each, name)) if (System.nanoTime() > deadline) throw new IllegalStateException(name + " was not read");
            each.commitSync();
        }
        for (boolean commits : new boolean[] {true, false}) {
            transactional.beginTransaction();
            transactional.send(record("in a transaction"));
            transactional.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)), consumers.get(0).groupMetadata());
            if (commits) transactional.commitTransaction(); else transactional.abortTransaction();
        }
    }

    public static void main(String[] args) throws Exception {
        Configurator.setRootLevel(Level.INFO);
        bootstrap = args[0];
        topic = args[1];
        Admin admin = Admin.create(settings());
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get(SECONDS_MAX, TimeUnit.SECONDS);
        KafkaProducer<String, String> producer = producer();
        KafkaProducer<String, String> transactional = producer("transactional.id", topic + "-id");
        transactional.initTransactions();
        List<KafkaConsumer<String, String>> consumers = new ArrayList<>();
        for (String protocol : new String[] {"classic", "consumer"}) consumers.add(consumer(protocol));
        work("morning", producer, transactional, consumers);
        System.out.println("restart");
        AtomicBoolean restarted = new AtomicBoolean();
        Thread waiting = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
            restarted.set(true);
        });
        waiting.setDaemon(true);
        waiting.start();
        while (!restarted.get()) {
            producer.send(record("meanwhile"));
            for (KafkaConsumer<String, String> each : consumers) read(each, "");
        }
        work("evening", producer, transactional, consumers);
        for (KafkaConsumer<String, String> each : consumers) each.close();
        producer.close();
        transactional.close();
        admin.listGroups().all().get(SECONDS_MAX, TimeUnit.SECONDS);
        admin.deleteTopics(List.of(topic)).all().get(SECONDS_MAX, TimeUnit.SECONDS);
        admin.close();
    }
}
