// Makes record batches with Apache Kafka's own classes ("write"), or reads ours with them ("read FILE").
//   write: one line "name hex" per batch.   read: FILE has such lines; prints what Kafka sees in each, one line per batch.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class RecordBatches {
    static final long TIME = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) write(); else read(Path.of(args[1]));
    }

    static void write() {
        for (CompressionType type : CompressionType.values()) {
            put(type.name + "-plain", MemoryRecords.withRecords(Compression.of(type).build(), rows()));
            if (type != CompressionType.NONE) put(type.name + "-long", MemoryRecords.withRecords(0L, Compression.of(type).build(), 7, longRows()));
        }
        put("idempotent", MemoryRecords.withIdempotentRecords(1234L, Compression.NONE, 77L, (short) 3, 2147483646, 5, rows()));
        put("transactional", MemoryRecords.withTransactionalRecords(Compression.NONE, 77L, (short) 3, 9, rows()));
        put("log-append-time", MemoryRecords.withRecords((byte) 2, 40L, Compression.NONE, TimestampType.LOG_APPEND_TIME, rows()[0]));
        put("commit", MemoryRecords.withEndTransactionMarker(50L, TIME, 6, 77L, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 11)));
        put("abort", MemoryRecords.withEndTransactionMarker(51L, TIME, 6, 77L, (short) 3, new EndTransactionMarker(ControlRecordType.ABORT, 12)));
        ByteBuffer room = ByteBuffer.allocate(1024);
        put("leader-change", MemoryRecords.withLeaderChangeMessage(60L, TIME, 8, room, leaderChange()));
        put("snapshot-header", MemoryRecords.withSnapshotHeaderRecord(0L, TIME, 8, ByteBuffer.allocate(256), new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(TIME)));
        put("snapshot-footer", MemoryRecords.withSnapshotFooterRecord(9L, TIME, 8, ByteBuffer.allocate(256), new SnapshotFooterRecord().setVersion((short) 0)));
        put("kraft-version", MemoryRecords.withKRaftVersionRecord(1L, TIME, 8, ByteBuffer.allocate(256), new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) 1)));
        put("voters", MemoryRecords.withVotersRecord(2L, TIME, 8, ByteBuffer.allocate(256), voters()));
    }

    static SimpleRecord[] rows() {
        Header[] headers = {new RecordHeader("trace", "abc".getBytes(StandardCharsets.UTF_8)), new RecordHeader("none", null), new RecordHeader("", new byte[0])};
        return new SimpleRecord[] {
            new SimpleRecord(TIME, "key".getBytes(), "value".getBytes()),
            new SimpleRecord(TIME + 5, null, "no key".getBytes()),
            new SimpleRecord(TIME - 3, "tombstone".getBytes(), null),
            new SimpleRecord(TIME + 70000, (byte[]) null, null),
            new SimpleRecord(TIME + 1, new byte[0], new byte[0], headers),
        };
    }

    static SimpleRecord[] longRows() {
        SimpleRecord[] rows = new SimpleRecord[300];
        for (int i = 0; i < rows.length; i++)
            rows[i] = new SimpleRecord(TIME + i, ("key-" + i).getBytes(), ("v" + i).repeat(100).getBytes());
        return rows;
    }

    static LeaderChangeMessage leaderChange() {
        LeaderChangeMessage.Voter voter = new LeaderChangeMessage.Voter().setVoterId(1);
        return new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1).setVoters(List.of(voter)).setGrantingVoters(List.of(voter));
    }

    static VotersRecord voters() {
        VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
        endpoints.add(new VotersRecord.Endpoint().setName("CONTROLLER").setHost("localhost").setPort(9093));
        return new VotersRecord().setVersion((short) 0).setVoters(List.of(
            new VotersRecord.Voter().setVoterId(1).setVoterDirectoryId(new Uuid(1, 2)).setEndpoints(endpoints)
                .setKRaftVersionFeature(new VotersRecord.KRaftVersionFeature().setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) 1))));
    }

    static void put(String name, MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        System.out.println(name + " " + HexFormat.of().formatHex(bytes));
    }

    static void read(Path file) throws Exception {
        for (String line : Files.readAllLines(file)) {
            String[] parts = line.split(" ");
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(parts[1])));
            for (MutableRecordBatch batch : records.batches()) {
                batch.ensureValid();
                System.out.println(parts[0] + " " + describe(batch));
            }
        }
    }

    static String describe(MutableRecordBatch batch) {
        List<String> rows = new ArrayList<>();
        for (Record record : batch) {
            StringBuilder row = new StringBuilder();
            row.append(record.offset()).append('@').append(record.timestamp()).append(' ').append(text(record.key())).append('=').append(text(record.value()));
            for (Header header : record.headers())
                row.append(' ').append(hex(header.key().getBytes(StandardCharsets.UTF_8))).append(':').append(header.value() == null ? "null" : hex(header.value()));
            rows.add(row.toString());
        }
        return String.join("|", String.valueOf(batch.baseOffset()), String.valueOf(batch.lastOffset()), String.valueOf(batch.partitionLeaderEpoch()),
            String.valueOf(batch.producerId()), String.valueOf(batch.producerEpoch()), String.valueOf(batch.baseSequence()), String.valueOf(batch.lastSequence()),
            batch.compressionType().name, batch.timestampType().name, String.valueOf(batch.isTransactional()), String.valueOf(batch.isControlBatch()),
            String.valueOf(batch.maxTimestamp()), batch.deleteHorizonMs().isPresent() ? String.valueOf(batch.deleteHorizonMs().getAsLong()) : "none", String.join(";", rows));
    }

    static String text(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return hex(bytes);
    }

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
