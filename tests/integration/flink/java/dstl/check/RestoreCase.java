package dstl.check;

import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;

/**
 * One case: a job with the declared operators, restored from a snapshot (or started empty, if there is none). It
 * reports every entry, applies updates, advances the watermark and takes a savepoint, then is cancelled.
 */
final class RestoreCase {
    private final Cluster cluster;
    private final JsonNode request;
    private final JsonNode operators;
    private final int parallelism;
    private final Map<String, DataStream<String>> added = new HashMap<>();
    private final String caseId = UUID.randomUUID().toString();

    RestoreCase(Cluster cluster, JsonNode request) {
        this.cluster = cluster;
        this.request = request;
        this.operators = request.get("operators");
        this.parallelism = request.get("parallelism").asInt();
    }

    ObjectNode run() throws Exception {
        int sources = 0;
        for (JsonNode operator : operators) {
            sources += operator.hasNonNull("chained_to") ? 0 : 1;
        }
        int fires = request.get("fires").asInt();
        try (Report report = new Report(caseId, sources, operators.size() * parallelism, fires);
                Cluster.Job job = cluster.submit(jobGraph(), request.get("timeout_s").asInt())) {
            job.await("the restore", report.restored.reached);
            job.await("the updates", report.emitted.reached);
            if (request.hasNonNull("watermark")) {
                job.await("the watermark", report.advanced.reached);
            }
            if (fires > 0) {
                job.await("timers and windows", report.due.reached);
            }
            ObjectNode answer = Json.object();
            ArrayNode checkpoints = answer.putArray("checkpoints");
            for (int taken = 0; taken < request.path("checkpoints").asInt(); taken++) {
                checkpoints.add(job.checkpoint());
            }
            if (request.hasNonNull("savepoint_to")) {
                answer.put("savepoint", job.savepoint(request.get("savepoint_to").asText(), savepointFormat(request)));
            }
            answer.putArray("entries").addAll(report.entries);
            answer.putArray("fired").addAll(report.fired);
            return answer;
        }
    }

    static SavepointFormatType savepointFormat(JsonNode request) {
        return SavepointFormatType.valueOf(request.get("savepoint_format").asText().toUpperCase(Locale.ROOT));
    }

    private JobGraph jobGraph() {
        StreamExecutionEnvironment environment = new StreamExecutionEnvironment(configuration(request));
        if (request.hasNonNull("max_parallelism")) {
            environment.setMaxParallelism(request.get("max_parallelism").asInt());
        }
        for (JsonNode operator : operators) {
            addOperator(environment, operator);
        }
        return restored(environment, request);
    }

    /** The graph of a job that starts from the request's snapshot, if it has one. */
    static JobGraph restored(StreamExecutionEnvironment environment, JsonNode request) {
        return restored(environment.getStreamGraph(), request);
    }

    static JobGraph restored(StreamGraph streamGraph, JsonNode request) {
        JobGraph graph = streamGraph.getJobGraph();
        if (request.hasNonNull("snapshot")) {
            boolean allowNonRestored = !request.get("strict").asBoolean();
            String snapshot = request.get("snapshot").asText();
            SavepointRestoreSettings settings = SavepointRestoreSettings.forPath(snapshot, allowNonRestored);
            if (request.hasNonNull("claim_mode")) {
                // The class of the mode has another name in Flink 1.
                Configuration configuration = new Configuration();
                SavepointRestoreSettings.toConfiguration(settings, configuration);
                configuration.setString(
                        "execution.state-recovery.claim-mode", request.get("claim_mode").asText());
                settings = SavepointRestoreSettings.fromConfiguration(configuration);
            }
            graph.setSavepointRestoreSettings(settings);
        }
        return graph;
    }

    static Configuration configuration(JsonNode request) {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", request.get("backend").asText());
        configuration.setString("state.changelog.enabled", request.get("changelog").asText());
        configuration.setString("restart-strategy.type", "none");
        request.path("settings")
                .fieldNames()
                .forEachRemaining(name -> configuration.setString(name, request.get("settings").get(name).asText()));
        if (request.path("checkpoints").asInt() > 0) {
            configuration.setString("execution.checkpointing.incremental", "true");
            configuration.setString("execution.checkpointing.num-retained", "1");
            configuration.setString("execution.checkpointing.data-inline-threshold", "0b");
            configuration.setString(
                    "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        }
        return configuration;
    }

    private void addOperator(StreamExecutionEnvironment environment, JsonNode spec) {
        String name = CheckOperator.nameOf(spec);
        if (spec.hasNonNull("chained_to")) {
            transform(added.get(spec.get("chained_to").asText()), spec);
            return;
        }
        Long watermark = request.hasNonNull("watermark") ? request.get("watermark").longValue() : null;
        UpdateSource source = new UpdateSource(caseId, updatesOf(name), watermark);
        SingleOutputStreamOperator<String> numbers =
                environment.addSource(source, "updates of " + name, Types.STRING).setParallelism(1);
        if (spec.hasNonNull("source_uid")) {
            numbers.uid(spec.get("source_uid").asText());
        }
        DataStream<String> updates = numbers;
        if (spec.hasNonNull("windows")) {
            Windows.add(updates, caseId, spec, parallelism);
            return;
        }
        if (spec.hasNonNull("key")) {
            String type = spec.get("key").asText();
            KeySelector<String, Object> key = update -> ValueType.parse(type).fromJson(Json.parse(update).get("key"));
            updates = updates.keyBy(key, ValueType.parse(type).information);
        } else {
            updates = updates.broadcast();
        }
        transform(updates, spec);
    }

    private void transform(DataStream<String> updates, JsonNode spec) {
        String name = CheckOperator.nameOf(spec);
        SingleOutputStreamOperator<String> operator =
                updates.transform(name, Types.STRING, new CheckOperator(caseId, spec)).setParallelism(parallelism);
        if (spec.hasNonNull("max_parallelism")) {
            operator.setMaxParallelism(spec.get("max_parallelism").asInt());
        }
        if (spec.hasNonNull("uid")) {
            operator.uid(spec.get("uid").asText());
        } else {
            operator.setUidHash(spec.get("hash").asText());
        }
        added.put(name, operator);
    }

    private List<String> updatesOf(String operator) {
        List<String> updates = new ArrayList<>();
        for (JsonNode update : request.get("updates")) {
            if (update.get("op").asText().equals(operator)) {
                updates.add(Json.text(update));
            }
        }
        return updates;
    }
}
