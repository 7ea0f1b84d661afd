package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;

/**
 * A job of its own, restored from a snapshot: the static method {@code build} of a class of the class path makes it. It
 * takes a savepoint as soon as it runs, and is cancelled. If it is to go on, it gets its next input after that, and takes
 * a second savepoint.
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
        StreamGraph graph = environment.getStreamGraph();
        if (request.hasNonNull("next")) {
            JsonNode next = request.get("next");
            NextInput.replaceFeed(graph, next.get(0).asLong(), next.get(1).asLong());
        }
        try (Cluster.Job job =
                cluster.submit(RestoreCase.restored(graph, request), request.get("timeout_s").asInt())) {
            ObjectNode answer = Json.object().put("savepoint", savepoint(job));
            if (request.hasNonNull("next")) {
                job.await("the next input", NextInput.open());
                answer.put("after", savepoint(job));
            }
            return answer;
        }
    }

    private String savepoint(Cluster.Job job) throws Exception {
        return job.savepoint(request.get("savepoint_to").asText(), RestoreCase.savepointFormat(request));
    }
}
