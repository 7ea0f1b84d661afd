package dstl.check;

import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** The declared list, union and broadcast states of one subtask. */
final class OperatorStates {
    private interface Registered {
        String kind();

        /** The whole state of this subtask as JSON. */
        JsonNode read() throws Exception;

        void change(JsonNode update) throws Exception;
    }

    private record Elements(String kind, ListState<Object> state, ValueType type) implements Registered {
        @Override
        public JsonNode read() throws Exception {
            ArrayNode elements = Json.array();
            state.get().forEach(element -> elements.add(type.toJson(element)));
            return elements;
        }

        @Override
        public void change(JsonNode update) throws Exception {
            state.add(type.fromJson(update.get("value")));
        }
    }

    private record Broadcast(String kind, BroadcastState<Object, Object> state, ValueType key, ValueType type)
            implements Registered {
        @Override
        public JsonNode read() throws Exception {
            List<ArrayNode> pairs = new ArrayList<>();
            for (Map.Entry<Object, Object> entry : state.immutableEntries()) {
                pairs.add(Json.pair(key.toJson(entry.getKey()), type.toJson(entry.getValue())));
            }
            return Json.sortedByKey(pairs);
        }

        @Override
        public void change(JsonNode update) throws Exception {
            state.put(key.fromJson(update.get("map_key")), type.fromJson(update.get("value")));
        }
    }

    private final int subtask;
    private final Map<String, Registered> states = new LinkedHashMap<>();

    OperatorStates(OperatorStateStore store, int subtask, JsonNode specs) throws Exception {
        this.subtask = subtask;
        for (JsonNode spec : specs) {
            states.put(spec.get("name").asText(), register(store, spec));
        }
    }

    private static Registered register(OperatorStateStore store, JsonNode spec) throws Exception {
        String name = spec.get("name").asText();
        String kind = spec.get("kind").asText();
        ValueType type = ValueType.parse(spec.get("type").asText());
        if (kind.equals("op-broadcast")) {
            ValueType key = ValueType.parse(spec.get("map_key").asText());
            var descriptor = new MapStateDescriptor<>(name, key.serializer(), type.serializer());
            return new Broadcast(kind, store.getBroadcastState(descriptor), key, type);
        }
        var descriptor = new ListStateDescriptor<>(name, type.serializer());
        return switch (kind) {
            case "op-list" -> new Elements(kind, store.getListState(descriptor), type);
            case "op-union" -> new Elements(kind, store.getUnionListState(descriptor), type);
            default -> throw new IllegalArgumentException("unknown kind of operator state: " + kind);
        };
    }

    /** Hands out one entry a subtask for list state; union and broadcast state are told by subtask 0, for all. */
    void read(Consumer<ObjectNode> entries) throws Exception {
        for (Map.Entry<String, Registered> each : states.entrySet()) {
            Registered state = each.getValue();
            boolean own = state.kind().equals("op-list");
            JsonNode value = state.read();
            if (value.isEmpty() || !own && subtask != 0) {
                continue;
            }
            ObjectNode entry = Json.object().put("kind", state.kind()).put("state", each.getKey());
            if (own) {
                entry.put("subtask", subtask);
            }
            entries.accept(entry.set("value", value));
        }
    }

    /** Every subtask restores all of a union state: kept by one only, or it multiplies in the next snapshot. */
    void forgetForeignUnions() {
        for (Registered state : states.values()) {
            if (state.kind().equals("op-union") && subtask != 0) {
                ((Elements) state).state().clear();
            }
        }
    }

    /** Applies an update: to every subtask for broadcast state, else to the one that it names (0). */
    void change(JsonNode update) throws Exception {
        Registered state = states.get(update.get("state").asText());
        if (state instanceof Broadcast || update.path("subtask").asInt() == subtask) {
            state.change(update);
        }
    }

    boolean has(String state) {
        return states.containsKey(state);
    }
}
