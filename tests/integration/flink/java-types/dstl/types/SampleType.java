package dstl.types;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.EnumSerializer;
import org.apache.flink.api.common.typeutils.base.GenericArraySerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.MapSerializer;
import org.apache.flink.api.common.typeutils.base.SetSerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.runtime.EitherSerializer;
import org.apache.flink.api.java.typeutils.runtime.NullableSerializer;
import org.apache.flink.api.java.typeutils.runtime.RowSerializer;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.runtime.typeutils.RowDataSerializer;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A type of a job, and some values of it.
 *
 * <p>A plain type is its name; another one an array of its kind and its parts, e.g. {@code ["list", ["pojo",
 * "p.User"]]}. Its classes come from a class loader; {@code registered} are POJO classes that the job registers.
 */
final class SampleType {
    final TypeSerializer<Object> serializer;
    private final JsonNode type;
    private final ClassLoader classes;
    private final List<Class<?>> registered = new ArrayList<>();

    SampleType(JsonNode type, JsonNode registered, ClassLoader classes) throws ReflectiveOperationException {
        this.type = type;
        this.classes = classes;
        for (JsonNode name : registered) {
            this.registered.add(Class.forName(name.textValue(), true, classes));
        }
        this.serializer = serializerOf(type);
    }

    /** Values of the type: one of each registered subclass, and one without values where they may be missing. */
    List<Object> samples() throws ReflectiveOperationException {
        List<Object> samples = new ArrayList<>();
        samples.add(sample(type, null, false));
        samples.add(sample(type, null, true));
        for (Class<?> subclass : registered) {
            samples.add(sample(type, subclass, false));
        }
        return samples;
    }

    private static TypeInformation<?> plain(String name) {
        return switch (name) {
            case "string" -> Types.STRING;
            case "long" -> Types.LONG;
            case "int" -> Types.INT;
            case "short" -> Types.SHORT;
            case "byte" -> Types.BYTE;
            case "char" -> Types.CHAR;
            case "float" -> Types.FLOAT;
            case "double" -> Types.DOUBLE;
            case "boolean" -> Types.BOOLEAN;
            case "instant" -> Types.INSTANT;
            case "bigdec" -> Types.BIG_DEC;
            default -> throw new IllegalArgumentException("unknown type " + name);
        };
    }

    @SuppressWarnings("unchecked")
    private <T> TypeSerializer<T> serializerOf(JsonNode node) throws ReflectiveOperationException {
        return (TypeSerializer<T>) made(node);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private TypeSerializer<?> made(JsonNode node) throws ReflectiveOperationException {
        SerializerConfigImpl config = new SerializerConfigImpl();
        registered.forEach(config::registerPojoType);
        if (node.isTextual()) {
            return plain(node.textValue()).createSerializer(config);
        }
        JsonNode first = node.get(1);
        return switch (node.get(0).textValue()) {
            case "pojo" -> Types.POJO(classOf(first)).createSerializer(config);
            case "enum" -> new EnumSerializer(classOf(first));
            case "kryo" -> new KryoSerializer<>(classOf(first), config);
            case "list" -> new ListSerializer<>(serializerOf(first));
            case "set" -> new SetSerializer<>(serializerOf(first));
            case "map" -> new MapSerializer<>(serializerOf(first), serializerOf(node.get(2)));
            case "array" -> new GenericArraySerializer(componentOf(first), serializerOf(first));
            case "nullable" -> NullableSerializer.wrap(serializerOf(first), false);
            case "padded" -> NullableSerializer.wrap(serializerOf(first), true);
            case "either" -> new EitherSerializer<>(serializerOf(first), serializerOf(node.get(2)));
            case "tuple" -> new TupleSerializer(Tuple.getTupleClass(node.size() - 1), parts(node));
            case "row" -> new RowSerializer(parts(node));
            case "ttl" -> new TtlStateFactory.TtlSerializer<>(LongSerializer.INSTANCE, serializerOf(first));
            case "rowdata" -> new RowDataSerializer(logical(node));
            default -> throw new IllegalArgumentException("unknown type " + node);
        };
    }

    private LogicalType[] logical(JsonNode node) {
        LogicalType[] types = new LogicalType[node.size() - 1];
        for (int at = 0; at < types.length; at++) {
            types[at] = LogicalTypeParser.parse(node.get(at + 1).textValue(), classes);
        }
        return types;
    }

    private TypeSerializer<?>[] parts(JsonNode node) throws ReflectiveOperationException {
        TypeSerializer<?>[] parts = new TypeSerializer<?>[node.size() - 1];
        for (int at = 0; at < parts.length; at++) {
            parts[at] = serializerOf(node.get(at + 1));
        }
        return parts;
    }

    @SuppressWarnings("unchecked")
    private Class<Object> classOf(JsonNode name) throws ReflectiveOperationException {
        return (Class<Object>) Class.forName(name.textValue(), true, classes);
    }

    private Class<?> componentOf(JsonNode node) throws ReflectiveOperationException {
        if (node.isTextual()) {
            return plain(node.textValue()).getTypeClass();
        }
        String kind = node.get(0).textValue();
        return kind.equals("pojo") || kind.equals("enum") || kind.equals("kryo")
                ? classOf(node.get(1))
                : switch (kind) {
                    case "list" -> List.class;
                    case "map" -> Map.class;
                    case "set" -> java.util.Set.class;
                    case "tuple" -> Tuple.getTupleClass(node.size() - 1);
                    case "either" -> Either.class;
                    case "row" -> Row.class;
                    default -> Object.class;
                };
    }

    private Object sample(JsonNode node, Class<?> subclass, boolean sparse) throws ReflectiveOperationException {
        if (node.isTextual()) {
            return plainSample(plain(node.textValue()).getTypeClass());
        }
        JsonNode first = node.get(1);
        switch (node.get(0).textValue()) {
            case "pojo":
                Class<?> wanted = classOf(first);
                boolean fits = subclass != null && wanted.isAssignableFrom(subclass);
                return objectOf(fits ? subclass : wanted, sparse);
            case "enum":
                Object[] constants = classOf(first).getEnumConstants();
                return constants[sparse ? 0 : constants.length - 1];
            case "kryo":
                return objectOf(classOf(first), sparse);
            case "list":
                return sparse ? new ArrayList<>() : new ArrayList<>(List.of(sample(first, subclass, false)));
            case "set":
                return sparse ? new HashSet<>() : new HashSet<>(List.of(sample(first, subclass, false)));
            case "map":
                Map<Object, Object> map = new HashMap<>();
                map.put(sample(first, subclass, false), sparse ? null : sample(node.get(2), subclass, false));
                return map;
            case "array":
                Object array = Array.newInstance(componentOf(first), sparse ? 0 : 2);
                if (!sparse) {
                    Array.set(array, 0, sample(first, subclass, false));
                }
                return array;
            case "nullable":
            case "padded":
                return sparse ? null : sample(first, subclass, false);
            case "either":
                return sparse
                        ? Either.Left(sample(first, subclass, false))
                        : Either.Right(sample(node.get(2), subclass, false));
            case "tuple":
                Tuple tuple = Tuple.newInstance(node.size() - 1);
                for (int at = 1; at < node.size(); at++) {
                    tuple.setField(sample(node.get(at), subclass, sparse), at - 1);
                }
                return tuple;
            case "row":
                Row row = new Row(node.size() - 1);
                for (int at = 1; at < node.size(); at++) {
                    row.setField(at - 1, sparse ? null : sample(node.get(at), subclass, false));
                }
                return row;
            case "ttl":
                return new TtlValue<>(sample(first, subclass, sparse), 7L);
            default:
                return new GenericRowData(node.size() - 1);
        }
    }

    private static Object plainSample(Class<?> type) {
        Map<Class<?>, Object> samples = new LinkedHashMap<>();
        samples.put(String.class, "ä");
        samples.put(Long.class, 1L << 40);
        samples.put(Integer.class, 70000);
        samples.put(Short.class, (short) 300);
        samples.put(Byte.class, (byte) 3);
        samples.put(Character.class, 'x');
        samples.put(Float.class, 1.5f);
        samples.put(Double.class, 2.5d);
        samples.put(Boolean.class, true);
        samples.put(java.time.Instant.class, java.time.Instant.ofEpochSecond(5, 6));
        samples.put(java.math.BigDecimal.class, new java.math.BigDecimal("1.50"));
        return samples.get(type);
    }

    private static Object objectOf(Class<?> type, boolean sparse) throws ReflectiveOperationException {
        Object object = type.getConstructor().newInstance();
        for (Field field : type.getFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                fill(object, field, sparse);
            }
        }
        return object;
    }

    private static void fill(Object object, Field field, boolean sparse) throws ReflectiveOperationException {
        Class<?> type = field.getType();
        if (type.isPrimitive()) {
            Object zeros = Array.newInstance(type, 1);
            Object value = plainSample(Array.get(zeros, 0).getClass());
            if (!sparse) {
                field.set(object, value);
            }
        } else if (sparse) {
            field.set(object, null);
        } else if (plainSample(type) != null) {
            field.set(object, plainSample(type));
        } else if (type.isEnum()) {
            field.set(object, type.getEnumConstants()[type.getEnumConstants().length - 1]);
        } else if (List.class.isAssignableFrom(type)) {
            Class<?> element = (Class<?>) ((ParameterizedType) field.getGenericType()).getActualTypeArguments()[0];
            Object one = plainSample(element) != null ? plainSample(element) : objectOf(element, false);
            field.set(object, new ArrayList<>(List.of(one)));
        } else if (type.isArray()) {
            Object array = Array.newInstance(type.getComponentType(), 1);
            Array.set(array, 0, objectOf(type.getComponentType(), false));
            field.set(object, array);
        } else {
            field.set(object, objectOf(type, false));
        }
    }
}
