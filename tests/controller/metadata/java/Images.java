import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Kafka's own metadata images. A line of input is a verb and record values in hex:
 * "delta" replays them onto the image, "load" as a snapshot, "write" prints the image's snapshot in a line and begins again.
 */
public class Images {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        MetadataImage image = MetadataImage.EMPTY;
        String failed = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("write")) {
                System.out.println(failed == null ? written(image) : failed);
                System.out.flush();
                image = MetadataImage.EMPTY;
                failed = null;
            } else if (failed == null) {
                try {
                    image = replayed(image, words);
                } catch (RuntimeException error) {
                    failed = "failed " + error;
                }
            }
        }
    }

    private static MetadataImage replayed(MetadataImage image, String[] words) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        for (int i = 1; i < words.length; i++) {
            byte[] value = HEX.parseHex(words[i]);
            delta.replay(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length).message());
        }
        if (words[0].equals("load")) {
            delta.finishSnapshot();
        }
        return delta.apply(new MetadataProvenance(image.offset() + words.length, 1, 0, true));
    }

    private static String written(MetadataImage image) {
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).build());
        List<String> values = new ArrayList<>();
        for (ApiMessageAndVersion record : writer.records()) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            values.add(HEX.formatHex(buffer.array()));
        }
        return String.join(" ", values);
    }
}
