package dstl.check;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.BooleanNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.DoubleNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.IntNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.LongNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.TextNode;

import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;

/**
 * A type by its short name, e.g. {@code map<string,list<long>>}: its type information, and its values as JSON in the
 * form of {@code dstl dump}. A new plain type is one entry of {@link #SCALARS}, a new composite one class.
 */
abstract class ValueType {
    private static final Map<String, ValueType> SCALARS = Map.of(
            "string", new Scalar<>(Types.STRING, TextNode::valueOf, JsonNode::textValue),
            "long", new Scalar<>(Types.LONG, LongNode::valueOf, JsonNode::longValue),
            "int", new Scalar<>(Types.INT, IntNode::valueOf, JsonNode::intValue),
            "boolean", new Scalar<>(Types.BOOLEAN, BooleanNode::valueOf, JsonNode::booleanValue),
            // asDouble also takes the texts NaN, Infinity and -Infinity.
            "double", new Scalar<>(Types.DOUBLE, ValueType::doubleText, JsonNode::asDouble),
            "float", new Scalar<>(Types.FLOAT, value -> doubleText(value), node -> Float.parseFloat(node.asText())),
            "decimal", new Scalar<>(
                    Types.BIG_DEC,
                    value -> TextNode.valueOf(value.toPlainString()),
                    node -> new BigDecimal(node.textValue())),
            "instant", new Scalar<>(
                    Types.INSTANT,
                    value -> TextNode.valueOf(value.toString()),
                    node -> Instant.parse(node.textValue())),
            // Flink has no type of its own for it, and leaves it to Kryo.
            "kryo", new Scalar<>(
                    Types.GENERIC(UUID.class),
                    value -> TextNode.valueOf(value.toString()),
                    node -> UUID.fromString(node.textValue())),
            "bytes", new Scalar<>(
                    PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO,
                    value -> TextNode.valueOf(HexFormat.of().formatHex(value)),
                    node -> HexFormat.of().parseHex(node.textValue())));

    final TypeInformation<Object> information;

    @SuppressWarnings("unchecked")
    ValueType(TypeInformation<?> information) {
        this.information = (TypeInformation<Object>) information;
    }

    abstract JsonNode toJson(Object value);

    abstract Object fromJson(JsonNode node);

    TypeSerializer<Object> serializer() {
        return information.createSerializer(new SerializerConfigImpl());
    }

    JsonNode nullableToJson(Object value) {
        return value == null ? NullNode.instance : toJson(value);
    }

    static ValueType parse(String name) {
        int open = name.indexOf('<');
        if (name.equals("account")) {
            return new AccountType();
        }
        if (open < 0 || !name.endsWith(">")) {
            ValueType scalar = SCALARS.get(name);
            if (scalar == null) {
                throw new IllegalArgumentException("unknown type " + name);
            }
            return scalar;
        }
        String names = name.substring(open + 1, name.length() - 1);
        List<ValueType> inner = parseAll(names);
        return switch (name.substring(0, open)) {
            case "list" -> new ListType(inner.get(0));
            case "map" -> new MapType(inner.get(0), inner.get(1));
            case "tuple" -> new TupleType(inner);
            case "rowdata" -> new RowDataType(inner, List.of(names.split(",")));
            default -> throw new IllegalArgumentException("unknown type " + name);
        };
    }

    /** Splits at the commas that stand in no inner brackets. */
    private static List<ValueType> parseAll(String names) {
        List<ValueType> types = new ArrayList<>();
        int depth = 0;
        int start = 0;
        for (int at = 0; at < names.length(); at++) {
            char character = names.charAt(at);
            depth += character == '<' ? 1 : character == '>' ? -1 : 0;
            if (character == ',' && depth == 0) {
                types.add(parse(names.substring(start, at).strip()));
                start = at + 1;
            }
        }
        types.add(parse(names.substring(start).strip()));
        return types;
    }

    private static JsonNode doubleText(double value) {
        return Double.isFinite(value) ? DoubleNode.valueOf(value) : TextNode.valueOf(Double.toString(value));
    }

    private static final class Scalar<T> extends ValueType {
        private final Function<T, JsonNode> writer;
        private final Function<JsonNode, T> reader;

        Scalar(TypeInformation<T> information, Function<T, JsonNode> writer, Function<JsonNode, T> reader) {
            super(information);
            this.writer = writer;
            this.reader = reader;
        }

        @Override
        @SuppressWarnings("unchecked")
        JsonNode toJson(Object value) {
            return writer.apply((T) value);
        }

        @Override
        Object fromJson(JsonNode node) {
            return reader.apply(node);
        }
    }

    private static final class AccountType extends ValueType {
        private final ValueType rates = parse("map<string,double>");
        private final ValueType tags = parse("list<string>");

        AccountType() {
            super(Types.POJO(Account.class));
        }

        @Override
        JsonNode toJson(Object value) {
            return ((Account) value).toJson(rates, tags);
        }

        @Override
        Object fromJson(JsonNode node) {
            return Account.fromJson(node, rates, tags);
        }
    }

    private static final class ListType extends ValueType {
        private final ValueType element;

        ListType(ValueType element) {
            super(Types.LIST(element.information));
            this.element = element;
        }

        @Override
        JsonNode toJson(Object value) {
            ArrayNode array = Json.array();
            ((List<?>) value).forEach(each -> array.add(element.nullableToJson(each)));
            return array;
        }

        @Override
        Object fromJson(JsonNode node) {
            List<Object> list = new ArrayList<>();
            node.forEach(each -> list.add(each.isNull() ? null : element.fromJson(each)));
            return list;
        }
    }

    private static final class MapType extends ValueType {
        private final ValueType key;
        private final ValueType value;

        MapType(ValueType key, ValueType value) {
            super(Types.MAP(key.information, value.information));
            this.key = key;
            this.value = value;
        }

        @Override
        JsonNode toJson(Object map) {
            List<ArrayNode> pairs = new ArrayList<>();
            ((Map<?, ?>) map).forEach((k, v) -> pairs.add(Json.pair(key.toJson(k), value.nullableToJson(v))));
            return Json.sortedByKey(pairs);
        }

        @Override
        Object fromJson(JsonNode node) {
            Map<Object, Object> map = new LinkedHashMap<>();
            for (JsonNode pair : node) {
                JsonNode item = pair.get(1);
                map.put(key.fromJson(pair.get(0)), item.isNull() ? null : value.fromJson(item));
            }
            return map;
        }
    }

    private static final class TupleType extends ValueType {
        private final List<ValueType> fields;

        TupleType(List<ValueType> fields) {
            super(Types.TUPLE(fields.stream().map(field -> field.information).toArray(TypeInformation[]::new)));
            this.fields = fields;
        }

        @Override
        JsonNode toJson(Object value) {
            ArrayNode array = Json.array();
            for (int index = 0; index < fields.size(); index++) {
                array.add(fields.get(index).toJson(((Tuple) value).getField(index)));
            }
            return array;
        }

        @Override
        Object fromJson(JsonNode node) {
            Tuple tuple = Tuple.newInstance(fields.size());
            for (int index = 0; index < fields.size(); index++) {
                tuple.setField(fields.get(index).fromJson(node.get(index)), index);
            }
            return tuple;
        }
    }
}
