package dstl.types;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshotWrapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedWriter;
import java.io.IOException;
import java.lang.reflect.Field;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/**
 * Asks real Flink whether a serializer of a new job takes state of an old job, pair by pair.
 *
 * <p>Both jobs have classes of the same names: the sources of the old ones and of the new ones are compiled apart. The
 * snapshot of the old type is written as in a savepoint and read with the new job's class loader.
 */
public final class TypePairs {
    private static final ObjectMapper JSON = new ObjectMapper();

    private TypePairs() {}

    /** The arguments: a folder for classes, a file with the question, and one for the answers, one a line. */
    public static void main(String[] arguments) throws Exception {
        Path work = Path.of(arguments[0]);
        JsonNode request = JSON.readTree(Path.of(arguments[1]).toFile());
        try (URLClassLoader old = compiled(request.get("old_classes"), work.resolve("old"));
                URLClassLoader changed = compiled(request.get("new_classes"), work.resolve("new"));
                BufferedWriter answers = Files.newBufferedWriter(Path.of(arguments[2]))) {
            for (JsonNode pair : request.get("pairs")) {
                answers.write(JSON.writeValueAsString(answer(pair, old, changed)));
                answers.newLine();
            }
            for (JsonNode value : request.get("values")) {
                answers.write(JSON.writeValueAsString(fields(value, changed)));
                answers.newLine();
            }
        }
    }

    private static ObjectNode answer(JsonNode pair, ClassLoader old, ClassLoader changed) throws Exception {
        SampleType before = new SampleType(pair.get("old"), pair.get("old_registered"), old);
        SampleType after = new SampleType(pair.get("new"), pair.get("new_registered"), changed);
        Thread.currentThread().setContextClassLoader(old);
        byte[] stored = snapshotOf(before.serializer);
        ArrayNode values = JSON.createArrayNode();
        List<byte[]> written = new ArrayList<>();
        for (Object value : before.samples()) {
            written.add(bytesOf(before.serializer, value));
        }
        Thread.currentThread().setContextClassLoader(changed);
        ObjectNode answer = JSON.createObjectNode()
                .put("old", HexFormat.of().formatHex(stored))
                .put("new", HexFormat.of().formatHex(snapshotOf(after.serializer)));
        try {
            TypeSerializerSnapshot<Object> restored = TypeSerializerSnapshot.readVersionedSnapshot(
                    new DataInputDeserializer(stored), changed);
            TypeSerializerSchemaCompatibility<Object> result = wrapped(after.serializer.snapshotConfiguration())
                    .resolveSchemaCompatibility(wrapped(restored));
            answer.put("flink", word(result));
            if (!result.isIncompatible()) {
                TypeSerializer<Object> now = result.isCompatibleWithReconfiguredSerializer()
                        ? result.getReconfiguredSerializer()
                        : after.serializer;
                // The snapshot that the next savepoint of the new job has.
                answer.put("next", HexFormat.of().formatHex(snapshotOf(now)));
                for (byte[] raw : written) {
                    values.add(values(restored, now, raw, result.isCompatibleAfterMigration()));
                }
            }
        } catch (Exception error) {
            answer.put("flink", "error").put("error", String.valueOf(error));
        }
        answer.set("values", values);
        return answer;
    }

    /** The fields of a POJO of the new job, read from its bytes, as text. */
    private static ObjectNode fields(JsonNode value, ClassLoader changed) throws Exception {
        SampleType type = new SampleType(value.get("type"), JSON.createArrayNode(), changed);
        byte[] raw = HexFormat.of().parseHex(value.get("hex").textValue());
        ObjectNode fields = JSON.createObjectNode();
        try {
            Object pojo = type.serializer.deserialize(new DataInputDeserializer(raw));
            for (Field field : pojo.getClass().getFields()) {
                fields.put(field.getName(), String.valueOf(field.get(pojo)));
            }
        } catch (RuntimeException error) {
            fields.put("error", String.valueOf(error));
        }
        return fields;
    }

    /** The bytes of a value, and its bytes in the next savepoint of the new job, or the error. */
    private static ArrayNode values(
            TypeSerializerSnapshot<Object> restored, TypeSerializer<Object> now, byte[] raw, boolean migrates) {
        ArrayNode both = JSON.createArrayNode().add(HexFormat.of().formatHex(raw));
        try {
            return both.add(HexFormat.of().formatHex(migrated(restored, now, raw, migrates)));
        } catch (Exception error) {
            return both.addNull().add(String.valueOf(error));
        }
    }

    /** The bytes of a value in the next savepoint of the new job. */
    private static byte[] migrated(
            TypeSerializerSnapshot<Object> restored, TypeSerializer<Object> now, byte[] raw, boolean migrates)
            throws IOException {
        TypeSerializer<Object> reader = migrates ? restored.restoreSerializer() : now;
        if (migrates && TtlAwareSerializer.needTtlStateMigration(reader, now)) {
            DataOutputSerializer out = new DataOutputSerializer(64);
            aware(now).migrateValueFromPriorSerializer(
                    aware(reader), () -> reader.deserialize(new DataInputDeserializer(raw)), out, () -> 99L);
            return out.getCopyOfBuffer();
        }
        return bytesOf(now, reader.deserialize(new DataInputDeserializer(raw)));
    }

    @SuppressWarnings("unchecked")
    private static TtlAwareSerializer<Object, ?> aware(TypeSerializer<Object> serializer) {
        return (TtlAwareSerializer<Object, ?>) TtlAwareSerializer.wrapTtlAwareSerializer(serializer);
    }

    private static TypeSerializerSnapshot<Object> wrapped(TypeSerializerSnapshot<Object> snapshot) {
        return new TtlAwareSerializerSnapshotWrapper<>(snapshot).getTtlAwareSerializerSnapshot();
    }

    private static String word(TypeSerializerSchemaCompatibility<?> result) {
        if (result.isCompatibleAsIs()) {
            return "as is";
        }
        if (result.isCompatibleAfterMigration()) {
            return "after migration";
        }
        return result.isIncompatible() ? "incompatible" : "reconfigured";
    }

    private static byte[] snapshotOf(TypeSerializer<Object> serializer) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(256);
        TypeSerializerSnapshot.writeVersionedSnapshot(out, serializer.snapshotConfiguration());
        return out.getCopyOfBuffer();
    }

    private static byte[] bytesOf(TypeSerializer<Object> serializer, Object value) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(64);
        serializer.serialize(value, out);
        return out.getCopyOfBuffer();
    }

    private static URLClassLoader compiled(JsonNode sources, Path folder) throws IOException {
        List<String> options = new ArrayList<>(List.of("-proc:none", "-nowarn", "-d", folder.toString()));
        Files.createDirectories(folder);
        for (var entries = sources.fields(); entries.hasNext(); ) {
            var entry = entries.next();
            Path file = folder.resolve(entry.getKey());
            Files.createDirectories(file.getParent());
            Files.writeString(file, entry.getValue().textValue());
            options.add(file.toString());
        }
        if (sources.size() > 0) {
            JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
            if (compiler.run(null, System.err, System.err, options.toArray(String[]::new)) != 0) {
                throw new IllegalArgumentException("The classes of the pairs do not compile.");
            }
        }
        return new URLClassLoader(new URL[] {folder.toUri().toURL()}, TypePairs.class.getClassLoader());
    }
}
