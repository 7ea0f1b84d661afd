import com.google.protobuf.Message; import org.apache.flink.api.common.serialization.SerializerConfigImpl; import org.apache.flink.api.common.typeutils.*; import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer; import org.apache.flink.core.memory.*; import pb.gen.*;
public class Serializers {
  static String hex(byte[] b) { return java.util.HexFormat.of().formatHex(b); }
  static void put(String name, TypeSerializer s, Object v) throws Exception {
    DataOutputSerializer o = new DataOutputSerializer(64); s.serialize(v, o);
    DataOutputSerializer p = new DataOutputSerializer(64); TypeSerializerSnapshot.writeVersionedSnapshot(p, s.snapshotConfiguration());
    System.out.println(name + "\t" + hex(o.getCopyOfBuffer()) + "\t" + hex(p.getCopyOfBuffer()) + "\t" + hex(((Message) s.deserialize(new DataInputDeserializer(o.getCopyOfBuffer()))).toByteArray()));
  }
  public static void main(String[] a) throws Exception {
    Line line = Line.newBuilder().setSku("abc").setQuantity(7).build();
    SerializerConfigImpl c = new SerializerConfigImpl(); c.addDefaultKryoSerializer(Message.class, pb.Proto.ProtobufSerializer.class);
    put("default", new KryoSerializer<>(Line.class, c), line);
    put("message", new KryoSerializer<>(Message.class, c), line);
    SerializerConfigImpl d = new SerializerConfigImpl(); d.addDefaultKryoSerializer(Message.class, new pb.Proto.ProtobufSerializer());
    put("object", new KryoSerializer<>(Line.class, d), line);
    SerializerConfigImpl e = new SerializerConfigImpl(); e.registerTypeWithKryoSerializer(Line.class, pb.Proto.ProtobufSerializer.class);
    put("declared", new KryoSerializer<>(Message.class, e), line);
  }
}
