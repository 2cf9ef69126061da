import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Prints the bytes Apache Kafka writes for every version of the message classes named by the arguments.
 *
 * A line is: class, version, variant, hex, JSON, separated by tabs. Each version is filled by what its schema says it
 * has: variant 0 leaves the defaults, 1 sets everything, 2 and 3 mix nulls, empty and long values. The values follow
 * from class, version and variant alone. Record batches hold the bytes 0, 1, 2...; JSON tells their size only.
 * A class the jars do not have is left out.
 */
public class GoldenMessages {
    static final int VARIANTS = 4;
    static final String[] WORDS = {"", "a", "topic-1", "größe", "日本", "x".repeat(126), "y".repeat(127), "z".repeat(300)};

    final Random random;
    final int variant;

    GoldenMessages(String name, int version, int variant) {
        this.random = new Random((name + version + "/" + variant).hashCode());
        this.variant = variant;
    }

    public static void main(String[] names) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String name : names) {
            Class<?> type;
            try {
                type = Class.forName(name);
            } catch (ClassNotFoundException e) {
                continue;
            }
            Message probe = (Message) type.getDeclaredConstructor().newInstance();
            for (short version = probe.lowestSupportedVersion(); version <= probe.highestSupportedVersion(); version++)
                for (int variant = 0; variant < VARIANTS; variant++)
                    line(out, type, version, variant);
        }
        System.out.print(out);
    }

    static void line(StringBuilder out, Class<?> type, short version, int variant) throws Exception {
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        if (variant > 0)
            new GoldenMessages(type.getSimpleName(), version, variant).fill(message, schema(type, version));
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        String json = "-";
        try {
            Method write = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class, boolean.class);
            json = ((JsonNode) write.invoke(null, message, version, false)).toString();
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof NullPointerException))  // null records have no size
                throw e;
        }
        out.append(type.getSimpleName()).append('\t').append(version).append('\t').append(variant).append('\t')
            .append(HexFormat.of().formatHex(bytes)).append('\t').append(json).append('\n');
    }

    static Schema schema(Class<?> type, short version) throws Exception {
        return (Schema) type.getField("SCHEMA_" + version).get(null);
    }

    void fill(Object message, Schema schema) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields tagged) {
                for (var field : tagged.fields().values())
                    if (variant == 1 || random.nextBoolean())
                        set(message, field.name, field.type);
            } else {
                set(message, bound.def.name, bound.def.type);
            }
        }
    }

    void set(Object message, String name, org.apache.kafka.common.protocol.types.Type wire) throws Exception {
        for (Field field : message.getClass().getDeclaredFields()) {
            if (!field.getName().equalsIgnoreCase(name.replace("_", "")))
                continue;
            String setter = "set" + Character.toUpperCase(field.getName().charAt(0)) + field.getName().substring(1);
            for (Method method : message.getClass().getMethods()) {
                if (method.getName().equals(setter)) {
                    method.invoke(message, value(wire, method.getGenericParameterTypes()[0]));
                    return;
                }
            }
        }
        throw new IllegalStateException(message.getClass() + " has no " + name);
    }

    Object value(org.apache.kafka.common.protocol.types.Type wire, Type java) throws Exception {
        if (wire.isNullable() && variant > 1 && random.nextInt(3) == 0)
            return null;
        if (wire instanceof Schema schema) {
            Object struct = raw(java).getDeclaredConstructor().newInstance();
            fill(struct, schema);
            return struct;
        }
        if (wire.arrayElementType().isPresent())
            return array(wire.arrayElementType().get(), java);
        return scalar(wire, raw(java));
    }

    @SuppressWarnings("unchecked")
    Object array(org.apache.kafka.common.protocol.types.Type item, Type java) throws Exception {
        Class<?> type = raw(java);
        Type itemType = java instanceof ParameterizedType p
            ? p.getActualTypeArguments()[0]
            : ((ParameterizedType) type.getGenericSuperclass()).getActualTypeArguments()[0];
        Collection<Object> out = type == List.class ? new ArrayList<>() : (Collection<Object>) type.getDeclaredConstructor().newInstance();
        boolean numbers = !(item instanceof Schema) && random.nextInt(8) == 0;
        int count = variant == 1 ? 2 : numbers ? 130 : random.nextInt(3);
        for (int i = 0; i < count; i++)
            out.add(value(item, itemType));
        return out;
    }

    Object scalar(org.apache.kafka.common.protocol.types.Type wire, Class<?> java) {
        if (java == boolean.class || java == Boolean.class)
            return variant == 1 || random.nextBoolean();
        if (java == String.class)
            return variant == 1 ? WORDS[2 + random.nextInt(2)] : WORDS[random.nextInt(WORDS.length)];
        if (java == Uuid.class)
            return variant > 1 && random.nextBoolean() ? Uuid.ZERO_UUID : new Uuid(number(64), number(64));
        if (java == double.class)
            return number(32) / 4.0;
        if (BaseRecords.class.isAssignableFrom(java))
            return MemoryRecords.readableRecords(ByteBuffer.wrap(octets()));
        if (java == byte[].class)
            return octets();
        if (java == ByteBuffer.class)
            return ByteBuffer.wrap(octets());
        if (java == byte.class || java == Byte.class)
            return (byte) number(8);
        if (java == short.class || java == Short.class)
            return (short) number(16);
        if (wire == org.apache.kafka.common.protocol.types.Type.UINT16)
            return (int) number(16) & 0xffff;
        if (java == int.class || java == Integer.class)
            return (int) number(32);
        return wire == org.apache.kafka.common.protocol.types.Type.UNSIGNED_INT32 ? number(32) & 0xffffffffL : number(64);
    }

    /** Few different numbers, so that the output packs well, but each edge of the range among them. */
    long number(int bits) {
        long max = bits == 64 ? Long.MAX_VALUE : (1L << bits - 1) - 1;
        switch (variant == 1 ? 5 : random.nextInt(6)) {
            case 0: return 0;
            case 1: return -1;
            case 2: return max;
            case 3: return -max - 1;
            default: return 1 + random.nextInt(100);
        }
    }

    byte[] octets() {
        byte[] out = new byte[variant == 1 ? 3 : new int[] {0, 1, 127, 200}[random.nextInt(4)]];
        for (int i = 0; i < out.length; i++)
            out[i] = (byte) i;
        return out;
    }

    static Class<?> raw(Type type) {
        return (Class<?>) (type instanceof ParameterizedType p ? p.getRawType() : type);
    }
}
