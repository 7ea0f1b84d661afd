package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.runtime.state.ttl.TtlValue;

import java.util.Locale;

/** A keyed state as a case declares it. {@code mapKey} is null for all kinds but MAP, {@code ttlMs} 0 without TTL. */
record StateSpec(String name, StateKind kind, ValueType type, ValueType mapKey, Namespace namespace, long ttlMs) {
    static StateSpec of(JsonNode spec) {
        return new StateSpec(
                spec.get("name").asText(),
                StateKind.valueOf(spec.get("kind").asText().toUpperCase(Locale.ROOT)),
                ValueType.parse(spec.get("type").asText()),
                spec.hasNonNull("map_key") ? ValueType.parse(spec.get("map_key").asText()) : null,
                Namespace.of(spec),
                spec.path("ttl_ms").asLong());
    }

    /** A value as it is stored: with the time of its last access, if the state has a TTL. */
    JsonNode toJson(Object stored) {
        if (ttlMs == 0) {
            return type.nullableToJson(stored);
        }
        TtlValue<?> value = (TtlValue<?>) stored;
        ObjectNode node = Json.object();
        node.set("v", type.nullableToJson(value.getUserValue()));
        return node.put("ts", value.getLastAccessTimestamp());
    }
}
