import java.math.*;
import java.time.*;
import java.util.*;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.api.common.typeutils.base.array.StringArraySerializer;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.api.java.typeutils.runtime.*;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.types.*;

public class Hashes {
    static StringBuilder out = new StringBuilder("{\n");
    static boolean first = true;

    static <T> void keys(String type, TypeSerializer<T> serializer, T... keys) throws Exception {
        out.append(first ? "" : ",\n").append(" \"").append(type).append("\": [");
        first = false;
        for (int i = 0; i < keys.length; i++) {
            DataOutputSerializer data = new DataOutputSerializer(64);
            serializer.serialize(keys[i], data);
            StringBuilder hex = new StringBuilder();
            for (byte b : data.getCopyOfBuffer()) hex.append(String.format("%02x", b));
            out.append(i == 0 ? "\n" : ",\n").append("  [\"").append(hex).append("\", ")
                .append(keys[i].hashCode()).append(", ")
                .append(KeyGroupRangeAssignment.assignToKeyGroup(keys[i], 32768)).append("]");
        }
        out.append("\n ]");
    }

    static Row row(Object... fields) { return Row.of(fields); }
    static Row kind(RowKind kind, Object... fields) { Row r = Row.of(fields); r.setKind(kind); return r; }
    static RowSerializer rows(TypeSerializer<?>... fields) { return new RowSerializer(fields); }
    static BigDecimal dec(String text) { return new BigDecimal(text); }
    static BigInteger big(String text) { return new BigInteger(text); }

    public static void main(String[] args) throws Exception {
        BigDecSerializer D = BigDecSerializer.INSTANCE;
        StringSerializer S = StringSerializer.INSTANCE;
        LongSerializer L = LongSerializer.INSTANCE;
        IntSerializer I = IntSerializer.INSTANCE;
        keys("decimal", D, dec("0"), dec("0.00"), dec("1"), dec("10"), dec("-1"), dec("-10"), dec("1E+5"), dec("12.34"),
            dec("-12.34"), dec("-2.56"), dec("-655.36"), dec("9223372036854775807"), dec("-9223372036854775807"),
            dec("-9223372036854775808"), dec("9223372036854775808"), dec("-18446744073709551616"),
            dec("123456789012345678901234567890.12345678"), dec("-123456789012345678901234567890.12345678"),
            dec("42949672.96"), dec("-42949672.96"), dec("2147483648"), dec("-2147483648"));
        keys("biginteger", BigIntSerializer.INSTANCE, big("0"), big("1"), big("10"), big("-1"), big("255"), big("-256"),
            big("4294967296"), big("-4294967296"), big("-18446744073709551616"), big("340282366920938463463374607431768211455"),
            big("-340282366920938463463374607431768211456"), big("123456789012345678901234567890"),
            big("-123456789012345678901234567890"));
        keys("java.util.date", DateSerializer.INSTANCE, new Date(0), new Date(-1), new Date(1700000000123L), new Date(-62135596800000L));
        keys("java.sql.date", SqlDateSerializer.INSTANCE, new java.sql.Date(0), new java.sql.Date(-1), new java.sql.Date(1700000000000L));
        keys("java.sql.time", SqlTimeSerializer.INSTANCE, new java.sql.Time(0), new java.sql.Time(86399999));
        java.sql.Timestamp t = new java.sql.Timestamp(1700000000000L); t.setNanos(123456789);
        java.sql.Timestamp u = new java.sql.Timestamp(-1000L); u.setNanos(1000);
        keys("java.sql.timestamp", SqlTimestampSerializer.INSTANCE, t, u, new java.sql.Timestamp(0));
        keys("timestamp", InstantSerializer.INSTANCE, Instant.EPOCH, Instant.ofEpochSecond(-1, 999999000),
            Instant.ofEpochSecond(1700000000, 123456000), Instant.ofEpochSecond(-62135596800L), Instant.ofEpochSecond(253402300799L, 999999000));
        LocalDate[] days = {LocalDate.of(1970, 1, 1), LocalDate.of(2024, 2, 29), LocalDate.of(1, 1, 1), LocalDate.of(9999, 12, 31),
            LocalDate.of(-44, 3, 15), LocalDate.of(1969, 12, 31)};
        LocalTime[] times = {LocalTime.MIDNIGHT, LocalTime.of(23, 59, 59, 999999000), LocalTime.of(12, 34, 56, 789000)};
        keys("date", LocalDateSerializer.INSTANCE, days);
        keys("time", LocalTimeSerializer.INSTANCE, times);
        keys("timestamp_ntz", LocalDateTimeSerializer.INSTANCE, days[0].atTime(times[0]), days[1].atTime(times[1]), days[3].atTime(times[2]), days[2].atTime(times[1]), days[5].atTime(times[2]));
        keys("LongValue", LongValueSerializer.INSTANCE, new LongValue(0), new LongValue(-1), new LongValue(5000000000L));
        keys("DoubleValue", DoubleValueSerializer.INSTANCE, new DoubleValue(0), new DoubleValue(-0.0), new DoubleValue(1.5), new DoubleValue(Double.NaN));
        keys("FloatValue", FloatValueSerializer.INSTANCE, new FloatValue(0), new FloatValue(-1.5f));
        keys("BooleanValue", BooleanValueSerializer.INSTANCE, new BooleanValue(true), new BooleanValue(false));
        keys("CharValue", CharValueSerializer.INSTANCE, new CharValue('a'), new CharValue('\uffff'));
        keys("ByteValue", ByteValueSerializer.INSTANCE, new ByteValue((byte) -3));
        keys("ShortValue", ShortValueSerializer.INSTANCE, new ShortValue((short) -300));
        keys("IntValue", IntValueSerializer.INSTANCE, new IntValue(-70000));
        keys("StringValue", StringValueSerializer.INSTANCE, new StringValue(""), new StringValue("h\u00e9llo\ud83d\ude00"));
        keys("row<string,long>", rows(S, L), row("de", 1L), row("", -1L), row(null, 5000000000L), row("h\u00e9llo\ud83d\ude00", null), row(null, null));
        keys("row<row kind>", rows(S), kind(RowKind.UPDATE_BEFORE, "a"), kind(RowKind.UPDATE_AFTER, "a"), kind(RowKind.DELETE, "a"), row("a"));
        keys("row<plain>", rows(BooleanSerializer.INSTANCE, ByteSerializer.INSTANCE, ShortSerializer.INSTANCE, I, FloatSerializer.INSTANCE, DoubleSerializer.INSTANCE, CharSerializer.INSTANCE),
            row(true, (byte) -1, (short) 300, 70000, 1.5f, -0.0, 'x'), row(false, (byte) 7, (short) -300, -70000, Float.NaN, Double.NaN, '\uffff'),
            row(null, null, null, null, null, null, null), row(true, null, (short) 1, null, -0.0f, null, 'a'));
        keys("row<times>", rows(InstantSerializer.INSTANCE, LocalDateSerializer.INSTANCE, LocalTimeSerializer.INSTANCE, LocalDateTimeSerializer.INSTANCE, D, BigIntSerializer.INSTANCE),
            row(Instant.ofEpochSecond(1700000000, 123456000), days[1], times[1], days[1].atTime(times[2]), dec("-12.34"), big("-123456789012345678901234567890")),
            row(null, days[0], null, null, dec("0"), null), row(Instant.EPOCH, null, times[0], days[3].atTime(times[0]), null, big("10")));
        keys("row<row<string,int>,tuple<string,long>>", rows(rows(S, I), new TupleSerializer<>((Class) Tuple2.class, new TypeSerializer[]{S, L})),
            row(row("a", 1), Tuple2.of("b", 2L)), row(null, Tuple2.of("b", -2L)), row(row(null, null), null), row(row("", -1), Tuple2.of("", 1L << 40)));
        Map<String, Long> map = new LinkedHashMap<>(); map.put("a", 1L); map.put("b", null);
        keys("row<lists>", rows(new ListSerializer<>(S), new GenericArraySerializer<>(String.class, S), new MapSerializer<>(S, L), new ListSerializer<>(new ListSerializer<>(I))),
            row(Arrays.asList("a", "b"), new String[]{"a", null}, map, Arrays.asList(Arrays.asList(1, 2), Arrays.asList())),
            row(Arrays.asList(), new String[]{}, new HashMap<String, Long>(), Arrays.asList()),
            row(null, null, null, null), row(Arrays.asList("x"), new String[]{"", "y"}, Collections.singletonMap("k", -1L), Arrays.asList(Arrays.asList(-1))));
        keys("array<decimal>", new ListSerializer<>(D), Arrays.asList(), Arrays.asList(dec("1.5"), dec("-2")), Arrays.asList(dec("10")));
        keys("nullable<string>", NullableSerializer.wrap(S, false), "a", "");
        keys("tuple<date,decimal,row<string>>", new TupleSerializer<Tuple3<LocalDate, BigDecimal, Row>>((Class) Tuple3.class, new TypeSerializer[]{LocalDateSerializer.INSTANCE, D, rows(S)}),
            Tuple3.of(days[1], dec("12.340"), row("a")), Tuple3.of(days[4], dec("-0.01"), row((Object) null)));
        System.out.println(out.append("\n}"));
    }
}
