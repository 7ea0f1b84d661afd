package dstl.check;

import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.runtime.state.internal.InternalAppendingState;
import org.apache.flink.runtime.state.internal.InternalKvState;
import org.apache.flink.runtime.state.internal.InternalListState;
import org.apache.flink.runtime.state.internal.InternalMapState;
import org.apache.flink.runtime.state.internal.InternalValueState;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The kinds of keyed state: how each is declared, read and changed. Current key and namespace are set before. */
enum StateKind {
    VALUE {
        @Override
        StateDescriptor<?, ?> declare(StateSpec spec) {
            return new ValueStateDescriptor<>(spec.name(), spec.type().serializer());
        }

        @Override
        JsonNode read(StateSpec spec, InternalKvState<?, ?, ?> state) throws Exception {
            Object stored = ((InternalValueState<?, ?, ?>) state).value();
            return stored == null ? null : spec.toJson(stored);
        }

        @Override
        void change(StateSpec spec, InternalKvState<?, ?, ?> state, String verb, JsonNode update) throws Exception {
            require(verb.equals("update"), verb);
            InternalValueState<?, ?, Object> value = cast(state, InternalValueState.class);
            value.update(spec.type().fromJson(update.get("value")));
        }
    },
    LIST {
        @Override
        StateDescriptor<?, ?> declare(StateSpec spec) {
            return new ListStateDescriptor<>(spec.name(), spec.type().serializer());
        }

        @Override
        JsonNode read(StateSpec spec, InternalKvState<?, ?, ?> state) throws Exception {
            Iterable<?> stored = (Iterable<?>) ((InternalListState<?, ?, ?>) state).getInternal();
            if (stored == null) {
                return null;
            }
            ArrayNode elements = Json.array();
            stored.forEach(element -> elements.add(spec.toJson(element)));
            return elements;
        }

        @Override
        void change(StateSpec spec, InternalKvState<?, ?, ?> state, String verb, JsonNode update) throws Exception {
            InternalListState<Object, Object, Object> list = cast(state, InternalListState.class);
            JsonNode value = update.get("value");
            if (verb.equals("add")) {
                list.add(spec.type().fromJson(value));
                return;
            }
            List<Object> elements = new ArrayList<>();
            value.forEach(element -> elements.add(spec.type().fromJson(element)));
            require(verb.equals("update") || verb.equals("add_all"), verb);
            if (verb.equals("update")) {
                list.update(elements);
            } else {
                list.addAll(elements);
            }
        }
    },
    MAP {
        @Override
        StateDescriptor<?, ?> declare(StateSpec spec) {
            return new MapStateDescriptor<>(spec.name(), spec.mapKey().serializer(), spec.type().serializer());
        }

        @Override
        JsonNode read(StateSpec spec, InternalKvState<?, ?, ?> state) throws Exception {
            InternalMapState<Object, Object, Object, Object> map = cast(state, InternalMapState.class);
            List<ArrayNode> pairs = new ArrayList<>();
            for (Map.Entry<Object, Object> entry : map.entries()) {
                pairs.add(Json.pair(spec.mapKey().toJson(entry.getKey()), spec.toJson(entry.getValue())));
            }
            return pairs.isEmpty() ? null : Json.sortedByKey(pairs);
        }

        @Override
        void change(StateSpec spec, InternalKvState<?, ?, ?> state, String verb, JsonNode update) throws Exception {
            InternalMapState<Object, Object, Object, Object> map = cast(state, InternalMapState.class);
            Object key = spec.mapKey().fromJson(update.get("map_key"));
            require(verb.equals("put") || verb.equals("remove"), verb);
            if (verb.equals("put")) {
                map.put(key, spec.type().fromJson(update.get("value")));
            } else {
                map.remove(key);
            }
        }
    },
    REDUCING {
        @Override
        StateDescriptor<?, ?> declare(StateSpec spec) {
            return new ReducingStateDescriptor<>(spec.name(), new Sum(), spec.type().serializer());
        }
    },
    AGGREGATING {
        @Override
        StateDescriptor<?, ?> declare(StateSpec spec) {
            return new AggregatingStateDescriptor<>(spec.name(), new Sum(), spec.type().serializer());
        }
    };

    abstract StateDescriptor<?, ?> declare(StateSpec spec);

    /** The stored value as JSON, or null if there is none. Here, and for the kinds that do not say: one accumulator. */
    JsonNode read(StateSpec spec, InternalKvState<?, ?, ?> state) throws Exception {
        Object stored = ((InternalAppendingState<?, ?, ?, ?, ?>) state).getInternal();
        return stored == null ? null : spec.toJson(stored);
    }

    /** Applies an update other than {@code clear}; by default, adds to the accumulator. */
    void change(StateSpec spec, InternalKvState<?, ?, ?> state, String verb, JsonNode update) throws Exception {
        require(verb.equals("add"), verb);
        InternalAppendingState<?, ?, Object, ?, ?> accumulator = cast(state, InternalAppendingState.class);
        accumulator.add(spec.type().fromJson(update.get("value")));
    }

    /** The descriptor of a state, with its TTL. */
    final StateDescriptor<?, ?> descriptor(StateSpec spec) {
        StateDescriptor<?, ?> descriptor = declare(spec);
        if (spec.ttlMs() > 0) {
            descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofMillis(spec.ttlMs())).build());
        }
        return descriptor;
    }

    final void require(boolean known, String verb) {
        if (!known) {
            throw new IllegalArgumentException(this + " state has no update " + verb);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T cast(Object state, Class<?> type) {
        return (T) type.cast(state);
    }
}
