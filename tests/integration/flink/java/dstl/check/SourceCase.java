package dstl.check;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

import java.util.UUID;

/**
 * A source of numbers, or of the lines of files, restored from a snapshot and read to its end. It
 * reports every number or line.
 */
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
        source(environment).process(new Reported(caseId), Types.STRING);
        try (Report report = new Report(caseId, 1, 0, 0);
                Cluster.Job job = cluster.submit(
                        RestoreCase.restored(environment, request), request.get("timeout_s").asInt())) {
            job.awaitEnd();
            ObjectNode answer = Json.object();
            answer.putArray("fired").addAll(report.fired);
            return answer;
        }
    }

    private DataStream<String> source(StreamExecutionEnvironment environment) {
        String uid = request.get("source").asText();
        if (request.hasNonNull("folder")) {
            FileSource<String> files = FileSource.forRecordStreamFormat(
                            new TextLineInputFormat(), new Path(request.get("folder").asText()))
                    .build();
            return environment.fromSource(files, WatermarkStrategy.noWatermarks(), "files").uid(uid);
        }
        NumberSequenceSource numbers = new NumberSequenceSource(0, request.get("last_number").asLong());
        return environment
                .fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
                .uid(uid)
                .map(String::valueOf)
                .returns(Types.STRING);
    }

    private static final class Reported extends ProcessFunction<String, String> {
        private static final long serialVersionUID = 1;
        private final String caseId;

        private Reported(String caseId) {
            this.caseId = caseId;
        }

        @Override
        public void processElement(String element, Context context, Collector<String> out) {
            Report.of(caseId).fire(Json.object().put("element", element));
        }
    }
}
