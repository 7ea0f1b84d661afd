package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.InternalTimerService;
import org.apache.flink.streaming.api.operators.Triggerable;

import java.util.function.Consumer;
import java.util.function.Supplier;

/** One timer service of a subtask. Timers that fire are handed to {@code fired}. */
final class Timers implements Triggerable<Object, Object> {
    /** Makes the service; an operator's own method. */
    interface Factory {
        InternalTimerService<Object> create(String name, Namespace namespace, Triggerable<Object, Object> target);
    }

    private final String name;
    private final Namespace namespace;
    private final KeyedStates keyed;
    private final Consumer<ObjectNode> fired;
    private final InternalTimerService<Object> service;

    Timers(JsonNode spec, KeyedStates keyed, Consumer<ObjectNode> fired, Factory factory) {
        this.name = spec.get("service").asText();
        this.namespace = Namespace.of(spec);
        this.keyed = keyed;
        this.fired = fired;
        this.service = factory.create(name, namespace, this);
    }

    /** Hands out all timers; {@code currentKey} gives the key that the service sets for each. */
    void read(Supplier<Object> currentKey, Consumer<ObjectNode> entries) throws Exception {
        service.forEachEventTimeTimer((ns, time) ->
                entries.accept(entry("event-timer", currentKey.get(), ns, time)));
        service.forEachProcessingTimeTimer((ns, time) ->
                entries.accept(entry("proc-timer", currentKey.get(), ns, time)));
    }

    private ObjectNode entry(String kind, Object key, Object ns, long time) {
        ObjectNode entry = Json.object().put("kind", kind).put("service", name).put("ts", time);
        return keyed.describe(entry, key, namespace.toJson(ns));
    }

    /** Registers or deletes a timer of the current key. */
    void change(JsonNode update) {
        Object ns = namespace.fromJson(update.get("ns"));
        long time = update.get("ts").longValue();
        switch (update.get("do").asText() + " " + update.get("kind").asText()) {
            case "register event-timer" -> service.registerEventTimeTimer(ns, time);
            case "delete event-timer" -> service.deleteEventTimeTimer(ns, time);
            case "register proc-timer" -> service.registerProcessingTimeTimer(ns, time);
            case "delete proc-timer" -> service.deleteProcessingTimeTimer(ns, time);
            default -> throw new IllegalArgumentException("unknown update of a timer: " + update);
        }
    }

    @Override
    public void onEventTime(InternalTimer<Object, Object> timer) {
        fired.accept(entry("event-timer", timer.getKey(), timer.getNamespace(), timer.getTimestamp()));
    }

    @Override
    public void onProcessingTime(InternalTimer<Object, Object> timer) {
        fired.accept(entry("proc-timer", timer.getKey(), timer.getNamespace(), timer.getTimestamp()));
    }
}
