import java.util.List;
import java.util.HexFormat;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.RestService;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;

/**
 * Flink's Avro serializer and deserializer, and Confluent's own Java client that they have inside, at a registry.
 *
 * <p>Arguments: the registry's URL, a schema, and in hexadecimal digits a value that another client has written with it.
 * It prints PASS or FAIL and a sentence for each check, and VALUE with the bytes of a value that it has written.
 */
public class JavaClients {
    interface Work {
        boolean holds() throws Exception;
    }

    static void check(String sentence, Work work) {
        try {
            System.out.println((work.holds() ? "PASS " : "FAIL ") + sentence);
        } catch (Exception error) {
            System.out.println("FAIL " + sentence + ": " + error);
        }
    }

    static int codeOf(Work work) throws Exception {
        try {
            work.holds();
            return 0;
        } catch (RestClientException error) {
            return error.getErrorCode();
        }
    }

    public static void main(String[] arguments) {
        String url = arguments[0];
        Schema schema = new Schema.Parser().parse(arguments[1]);
        byte[] written = HexFormat.of().parseHex(arguments[2]);
        flink(url, schema, written);
        confluent(new CachedSchemaRegistryClient(url, 100), schema);
        otherFormats(new RestService(url));
    }

    static void flink(String url, Schema schema, byte[] written) {
        check("Flink's serializer registers its schema, and its deserializer reads the value", () -> {
            GenericRecord order = new GenericData.Record(schema);
            order.put("id", 7L);
            order.put("who", "alice");
            byte[] value =
                    ConfluentRegistryAvroSerializationSchema.forGeneric("flink-value", schema, url).serialize(order);
            System.out.println("VALUE " + HexFormat.of().formatHex(value));
            return read(url, schema, value).get("id").equals(7L);
        });
        check("Flink's deserializer reads a value of confluent-kafka's serializer", () -> {
            GenericRecord order = read(url, schema, written);
            return order.get("id").equals(8L) && order.get("who").toString().equals("bob");
        });
    }

    static GenericRecord read(String url, Schema schema, byte[] value) throws Exception {
        return ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url).deserialize(value);
    }

    static void confluent(CachedSchemaRegistryClient client, Schema schema) {
        String subject = "java-value";
        AvroSchema first = new AvroSchema(schema);
        AvroSchema second = new AvroSchema(with(schema, "{\"name\":\"note\",\"type\":\"string\",\"default\":\"\"}"));
        AvroSchema wrong = new AvroSchema(with(schema, "{\"name\":\"must\",\"type\":\"string\"}"));
        check("a schema is registered once, and found by its id", () -> {
            int id = client.register(subject, first);
            client.reset();
            return client.register(subject, first) == id && client.getSchemaById(id).equals(first);
        });
        check("compatibility is tested, and an incompatible schema is refused with 40901", () ->
                client.testCompatibility(subject, second)
                        && !client.testCompatibility(subject, wrong)
                        && !client.testCompatibilityVerbose(subject, wrong).isEmpty()
                        && codeOf(() -> client.register(subject, wrong) > 0) == 40901);
        check("versions are counted, and the latest one is the last", () -> {
            int id = client.register(subject, second);
            return client.getAllVersions(subject).equals(List.of(1, 2))
                    && client.getLatestSchemaMetadata(subject).getId() == id
                    && client.getVersion(subject, second) == 2
                    && client.getAllSubjectsById(id).contains(subject);
        });
        check("a level of compatibility is set, read, and deleted", () -> {
            client.updateCompatibility(subject, "NONE");
            boolean isSet = client.getCompatibility(subject).equals("NONE") && client.register(subject, wrong) > 0;
            client.deleteConfig(subject);
            return isSet && codeOf(() -> client.getCompatibility(subject) != null) == 40408;
        });
        check("the mode is read, and READONLY refuses a schema", () -> {
            client.setMode("READONLY", subject);
            AvroSchema third = new AvroSchema(with(schema, "{\"name\":\"more\",\"type\":\"string\",\"default\":\"\"}"));
            int code = codeOf(() -> client.register(subject, third) > 0);
            client.deleteMode(subject);
            return client.getMode().equals("READWRITE") && code == 42205;
        });
        check("subjects and versions that do not exist have Confluent's error codes", () ->
                codeOf(() -> client.getLatestSchemaMetadata("none") != null) == 40401
                        && codeOf(() -> client.getSchemaMetadata(subject, 99) != null) == 40402
                        && codeOf(() -> client.getSchemaById(999_999) != null) == 40403);
        check("a subject is deleted softly and then for good", () ->
                client.deleteSubject(subject).equals(List.of(1, 2, 3))
                        && !client.getAllSubjects().contains(subject)
                        && client.getAllSubjects(true).contains(subject)
                        && client.deleteSubject(subject, true).size() == 3
                        && !client.getAllSubjects(true).contains(subject));
    }

    static void otherFormats(RestService rest) {
        check("schemas of JSON and Protobuf are registered and found by Confluent's RestService", () -> {
            String json = "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"}}}";
            String proto = "syntax = \"proto3\";\nmessage Order {\n  int64 id = 1;\n}\n";
            int ofJson = rest.registerSchema(json, "JSON", List.of(), "java-json").getId();
            int ofProto = rest.registerSchema(proto, "PROTOBUF", List.of(), "java-proto").getId();
            return rest.getId(ofJson).getSchemaType().equals("JSON")
                    && rest.getId(ofJson).getSchemaString().equals(json)
                    && rest.getId(ofProto).getSchemaType().equals("PROTOBUF")
                    && rest.getLatestVersion("java-proto").getSchema().contains("int64 id = 1");
        });
    }

    static Schema with(Schema schema, String field) {
        String text = schema.toString();
        int end = text.lastIndexOf("]}");
        return new Schema.Parser().parse(text.substring(0, end) + "," + field + text.substring(end));
    }
}
