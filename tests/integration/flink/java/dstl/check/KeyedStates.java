package dstl.check;

import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.internal.InternalKvState;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.lang.reflect.Field;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The declared keyed states of one subtask. */
final class KeyedStates {
    private record Registered(StateSpec spec, InternalKvState<Object, Object, ?> state) {}

    private final KeyedStateBackend<Object> backend;
    private final ValueType keyType;
    private final int maxParallelism;
    private final Map<String, Registered> states = new LinkedHashMap<>();

    KeyedStates(KeyedStateBackend<Object> backend, ValueType keyType, int maxParallelism, JsonNode specs)
            throws Exception {
        this.backend = backend;
        this.keyType = keyType;
        this.maxParallelism = maxParallelism;
        for (JsonNode each : specs) {
            StateSpec spec = StateSpec.of(each);
            states.put(spec.name(), new Registered(spec, register(spec)));
        }
    }

    @SuppressWarnings("unchecked")
    private InternalKvState<Object, Object, ?> register(StateSpec spec) throws Exception {
        StateDescriptor<State, ?> descriptor = (StateDescriptor<State, ?>) spec.kind().descriptor(spec);
        State state = backend.getOrCreateKeyedState(spec.namespace().serializer, descriptor);
        return (InternalKvState<Object, Object, ?>) state;
    }

    /** Hands out every entry that the backend holds, found through the backend's own list of keys. */
    void read(Consumer<ObjectNode> entries) throws Exception {
        for (Registered each : states.values()) {
            for (Tuple2<Object, Object> scope : scopes(each.spec.name())) {
                entries.accept(entry(each.spec, stored(each), scope.f0, scope.f1));
            }
        }
    }

    /** All keys and namespaces of a state. Map state lists some more than once; reading while listing loses keys. */
    private Set<Tuple2<Object, Object>> scopes(String state) {
        try (Stream<Tuple2<Object, Object>> listed = backend.getKeysAndNamespaces(state)) {
            return listed.collect(Collectors.toCollection(LinkedHashSet::new));
        }
    }

    private ObjectNode entry(StateSpec spec, InternalKvState<Object, Object, ?> state, Object key, Object namespace)
            throws Exception {
        backend.setCurrentKey(key);
        state.setCurrentNamespace(namespace);
        JsonNode value = spec.kind().read(spec, state);
        if (value == null) {
            throw new IllegalStateException("State " + spec.name() + " lists the key " + keyType.toJson(key)
                    + " but has no value for it: the key lies in a wrong key group.");
        }
        ObjectNode entry = Json.object().put("kind", spec.kind().name().toLowerCase()).put("state", spec.name());
        return describe(entry, key, spec.namespace().toJson(namespace)).set("value", value);
    }

    /** Adds key, key group and namespace to an entry. */
    ObjectNode describe(ObjectNode entry, Object key, JsonNode namespace) {
        entry.put("kg", KeyGroupRangeAssignment.assignToKeyGroup(key, maxParallelism));
        entry.set("key", keyType.toJson(key));
        return entry.set("ns", namespace);
    }

    /** The state below the TTL wrapper, which would hide expired values and the time of the last access. */
    @SuppressWarnings("unchecked")
    private static InternalKvState<Object, Object, ?> stored(Registered registered) throws Exception {
        if (registered.spec.ttlMs() == 0) {
            return registered.state;
        }
        Field original = Class.forName("org.apache.flink.runtime.state.ttl.AbstractTtlDecorator").getDeclaredField("original");
        original.setAccessible(true);
        return (InternalKvState<Object, Object, ?>) original.get(registered.state);
    }

    /** Applies an update to the state of the current key. */
    void change(JsonNode update) throws Exception {
        Registered target = states.get(update.get("state").asText());
        target.state.setCurrentNamespace(target.spec.namespace().fromJson(update.get("ns")));
        String verb = update.get("do").asText();
        if (verb.equals("clear")) {
            target.state.clear();
        } else {
            target.spec.kind().change(target.spec, target.state, verb, update);
        }
    }

    boolean has(String state) {
        return states.containsKey(state);
    }
}
