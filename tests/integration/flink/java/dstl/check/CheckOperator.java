package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Declares the states that its JSON names, reports all that they hold after the restore, then applies updates, which
 * come as JSON texts.
 */
final class CheckOperator extends AbstractStreamOperator<String> implements OneInputStreamOperator<String, String> {
    private static final long serialVersionUID = 1;

    private final String caseId;
    private final String specification;
    private transient Report report;
    private transient String name;
    private transient KeyedStates keyed;
    private transient OperatorStates states;
    private transient Map<String, Timers> timers;

    CheckOperator(String caseId, JsonNode specification) {
        this.caseId = caseId;
        this.specification = specification.toString();
    }

    /** What entries call an operator: its uid or, without one, its hash. */
    static String nameOf(JsonNode specification) {
        return Json.text(specification, "uid", specification.path("hash").asText());
    }

    @Override
    public void open() throws Exception {
        super.open();
        report = Report.of(caseId);
        JsonNode spec = Json.parse(specification);
        name = nameOf(spec);
        int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        states = new OperatorStates(getOperatorStateBackend(), subtask, spec.path("operator_states"));
        states.read(this::reportEntry);
        states.forgetForeignUnions();
        timers = new LinkedHashMap<>();
        if (spec.hasNonNull("key")) {
            openKeyed(spec);
        }
        report.restored.arrive();
    }

    private void openKeyed(JsonNode spec) throws Exception {
        int maxParallelism = getRuntimeContext().getTaskInfo().getMaxNumberOfParallelSubtasks();
        ValueType key = ValueType.parse(spec.get("key").asText());
        keyed = new KeyedStates(getKeyedStateBackend(), key, maxParallelism, spec.path("states"));
        keyed.read(this::reportEntry);
        for (JsonNode each : spec.path("timers")) {
            Timers service = new Timers(each, keyed, this::reportFired, (name, namespace, target) ->
                    getInternalTimerService(name, namespace.serializer, target));
            service.read(this::getCurrentKey, this::reportEntry);
            timers.put(each.get("service").asText(), service);
        }
    }

    private void reportEntry(ObjectNode entry) {
        report.entries.add(entry.put("op", name));
    }

    private void reportFired(ObjectNode timer) {
        report.fire(timer.put("op", name));
    }

    @Override
    public void processElement(StreamRecord<String> record) throws Exception {
        JsonNode update = Json.parse(record.getValue());
        if (update.has("service")) {
            timers.get(update.get("service").asText()).change(update);
        } else if (keyed != null && keyed.has(update.get("state").asText())) {
            keyed.change(update);
        } else if (states.has(update.get("state").asText())) {
            states.change(update);
        } else {
            throw new IllegalArgumentException("an update names an unknown state: " + update);
        }
    }

    @Override
    public void processWatermark(Watermark watermark) throws Exception {
        super.processWatermark(watermark);
        report.advanced.arrive();
    }
}
