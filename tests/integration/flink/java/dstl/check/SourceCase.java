package dstl.check;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

import java.util.UUID;

/** A source of numbers, restored from a snapshot and read to its end. It reports every number. */
final class SourceCase {
    private final Cluster cluster;
    private final JsonNode request;
    private final String caseId = UUID.randomUUID().toString();

    SourceCase(Cluster cluster, JsonNode request) {
        this.cluster = cluster;
        this.request = request;
    }

    ObjectNode run() throws Exception {
        StreamExecutionEnvironment environment =
                new StreamExecutionEnvironment(RestoreCase.configuration(request));
        environment.setParallelism(request.get("parallelism").asInt());
        long last = request.get("last_number").asLong();
        environment.fromSource(new NumberSequenceSource(0, last), WatermarkStrategy.noWatermarks(), "numbers")
                .uid(request.get("source").asText())
                .process(new Reported(caseId), Types.LONG);
        try (Report report = new Report(caseId, 1, 0, 0);
                Cluster.Job job = cluster.submit(
                        RestoreCase.restored(environment, request), request.get("timeout_s").asInt())) {
            job.awaitEnd();
            ObjectNode answer = Json.object();
            answer.putArray("fired").addAll(report.fired);
            return answer;
        }
    }

    private static final class Reported extends ProcessFunction<Long, Long> {
        private static final long serialVersionUID = 1;
        private final String caseId;

        private Reported(String caseId) {
            this.caseId = caseId;
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) {
            Report.of(caseId).fire(Json.object().put("number", number));
        }
    }
}
