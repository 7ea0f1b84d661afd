package dstl.kryo;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Writes random values of classes, and reads values.
 *
 * <pre>
 *   write:  class, seed  ->  class, seed, "written", snapshot, value, shown value
 *                          | class, seed, "skipped", reason
 *   read:   class, seed, snapshot, value, shown value
 *                        ->  class, seed, "equal" | "differs", shown value | "failed", message
 *   hold:   class, seed  ->  class, seed, "equal" | "differs", shown value | "failed", message
 * </pre>
 *
 * A line has its parts with tabs between; bytes, texts and shown values are in hexadecimal digits.
 * Values that this Flink does not read as it wrote them are skipped. {@code hold} writes and reads a
 * value with this Flink alone.
 */
public final class Exchange {
  private static final HexFormat HEX = HexFormat.of();

  public static void main(String[] arguments) throws Exception {
    // Flink may log to the standard output.
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split("\t");
      out.println(parts[0] + "\t" + parts[1] + "\t" + answer(arguments[0], parts));
    }
  }

  private static String answer(String mode, String[] parts) {
    try {
      switch (mode) {
        case "write":
          return written(parts[0], Long.parseLong(parts[1]));
        case "read":
          return read(parts);
        default:
          return held(parts[0], Long.parseLong(parts[1]));
      }
    } catch (Throwable error) {
      return (mode.equals("write") ? "skipped\t" : "failed\t") + hex(causes(error));
    }
  }

  private static String causes(Throwable error) {
    StringBuilder found = new StringBuilder();
    for (Throwable each = error; each != null; each = each.getCause()) {
      found.append(each).append(" ");
    }
    return found.toString();
  }

  private static String hex(String text) {
    return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
  }

  @SuppressWarnings("unchecked")
  private static TypeSerializer<Object> serializer(String name) throws Exception {
    TypeInformation<?> type = TypeExtractor.createTypeInfo(Class.forName(name));
    return (TypeSerializer<Object>) type.createSerializer(new SerializerConfigImpl());
  }

  private static boolean isExact(TypeSerializer<?> serializer) {
    return serializer instanceof KryoSerializer;
  }

  private static String written(String name, long seed) throws Exception {
    TypeSerializer<Object> serializer = serializer(name);
    Object value = new Fill(seed).object(Class.forName(name), Map.of(), 0);
    DataOutputSerializer out = new DataOutputSerializer(64);
    TypeSerializerSnapshot.writeVersionedSnapshot(out, serializer.snapshotConfiguration());
    byte[] snapshot = out.getCopyOfBuffer();
    out = new DataOutputSerializer(64);
    serializer.serialize(value, out);
    byte[] stored = out.getCopyOfBuffer();
    String shown = Shown.of(value, isExact(serializer));
    String again = shown(serializer(name), stored);
    if (!again.equals(shown)) return "skipped\t" + hex("read as " + again + " was " + shown);
    return "written\t" + HEX.formatHex(snapshot) + "\t" + HEX.formatHex(stored) + "\t" + hex(shown);
  }

  private static String shown(TypeSerializer<Object> serializer, byte[] stored) throws Exception {
    DataInputDeserializer in = new DataInputDeserializer(stored);
    Object value = serializer.deserialize(in);
    if (in.available() > 0) throw new IllegalStateException(in.available() + " bytes are left");
    return Shown.of(value, isExact(serializer));
  }

  private static String read(String[] parts) throws Exception {
    TypeSerializer<Object> serializer = serializer(parts[0]);
    TypeSerializerSnapshot<Object> before =
        TypeSerializerSnapshot.readVersionedSnapshot(
            new DataInputDeserializer(HEX.parseHex(parts[2])), Exchange.class.getClassLoader());
    if (!serializer
        .snapshotConfiguration()
        .resolveSchemaCompatibility(before)
        .isCompatibleAsIs()) {
      throw new IllegalStateException("the serializers are not compatible as they are");
    }
    byte[] stored = HEX.parseHex(parts[3]);
    String shown = shown(serializer, stored);
    if (!shown.equals(shown(before.restoreSerializer(), stored))) {
      throw new IllegalStateException("the restored serializer reads another value");
    }
    return compared(shown, new String(HEX.parseHex(parts[4]), StandardCharsets.UTF_8));
  }

  private static String held(String name, long seed) throws Exception {
    TypeSerializer<Object> serializer = serializer(name);
    Object value = new Fill(seed).object(Class.forName(name), Map.of(), 0);
    DataOutputSerializer out = new DataOutputSerializer(64);
    serializer.serialize(value, out);
    String shown = Shown.of(value, isExact(serializer));
    return compared(shown(serializer(name), out.getCopyOfBuffer()), shown);
  }

  private static String compared(String shown, String expected) {
    return shown.equals(expected) ? "equal" : "differs\t" + hex(shown);
  }
}
