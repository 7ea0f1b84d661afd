package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job of its own, restored from a snapshot: the static method {@code build} of a class of the class path makes it. It
 * takes a savepoint as soon as it runs, and is cancelled.
 */
final class JobCase {
    private final Cluster cluster;
    private final JsonNode request;

    JobCase(Cluster cluster, JsonNode request) {
        this.cluster = cluster;
        this.request = request;
    }

    ObjectNode run() throws Exception {
        StreamExecutionEnvironment environment =
                new StreamExecutionEnvironment(RestoreCase.configuration(request));
        environment.setParallelism(request.get("parallelism").asInt());
        environment.setMaxParallelism(request.get("max_parallelism").asInt());
        Class.forName(request.get("job").asText())
                .getMethod("build", StreamExecutionEnvironment.class)
                .invoke(null, environment);
        try (Cluster.Job job =
                cluster.submit(RestoreCase.restored(environment, request), request.get("timeout_s").asInt())) {
            String savepoint =
                    job.savepoint(request.get("savepoint_to").asText(), RestoreCase.savepointFormat(request));
            return Json.object().put("savepoint", savepoint);
        }
    }
}
