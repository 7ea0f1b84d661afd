package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.BooleanType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.RowKind;

import java.util.List;
import java.util.Map;

/** A row of SQL: {@code rowdata<long,string>} is {@code ROW<BIGINT, STRING>}, in SQL's own serializer. */
final class RowDataType extends ValueType {
    private static final Map<String, LogicalType> TYPES = Map.of(
            "string", VarCharType.STRING_TYPE,
            "long", new BigIntType(),
            "int", new IntType(),
            "boolean", new BooleanType(),
            "double", new DoubleType());

    private final List<ValueType> fields;
    private final LogicalType[] types;

    RowDataType(List<ValueType> fields, List<String> names) {
        super(InternalTypeInfo.ofFields(typesOf(names)));
        this.fields = fields;
        this.types = typesOf(names);
    }

    private static LogicalType[] typesOf(List<String> names) {
        return names.stream().map(TYPES::get).toArray(LogicalType[]::new);
    }

    @Override
    JsonNode toJson(Object value) {
        RowData row = (RowData) value;
        ArrayNode array = Json.array();
        array.add(row.getRowKind().shortString());
        for (int index = 0; index < types.length; index++) {
            Object field = RowData.createFieldGetter(types[index], index).getFieldOrNull(row);
            array.add(fields.get(index).nullableToJson(field instanceof StringData ? field.toString() : field));
        }
        return array;
    }

    @Override
    Object fromJson(JsonNode node) {
        GenericRowData row = new GenericRowData(RowKind.INSERT, types.length);
        for (int index = 0; index < types.length; index++) {
            JsonNode field = node.get(index + 1);
            Object value = field.isNull() ? null : fields.get(index).fromJson(field);
            row.setField(index, value instanceof String ? StringData.fromString((String) value) : value);
        }
        return row;
    }
}
