// What Kafka's own client library for MirrorMaker reads of a mirror in its target: a line for each fact, which mirror.py compares.
//
//     java Translated BOOTSTRAP ALIAS GROUP

import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class Translated {
    public static void main(String[] args) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", args[0]);
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(properties, args[1], args[2], Duration.ofSeconds(30));
        TreeMap<String, Long> sorted = new TreeMap<>();
        found.forEach((place, offset) -> sorted.put(place.toString(), offset.offset()));
        sorted.forEach((place, offset) -> System.out.println("offset " + place + " " + offset));
        System.out.println("hops " + RemoteClusterUtils.replicationHops(properties, args[1]));
        System.out.println("upstream " + RemoteClusterUtils.upstreamClusters(properties));
        System.out.println("checkpoints " + RemoteClusterUtils.checkpointTopics(properties));
    }
}
