package dstl.check;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * One query of Flink SQL over tables of plain rows, restored from a snapshot (or started empty): the planner makes its
 * operators. It reports what the query emits for the rows and takes a savepoint, then is cancelled.
 */
final class SqlCase {
    private final Cluster cluster;
    private final JsonNode request;
    private final String caseId = UUID.randomUUID().toString();

    SqlCase(Cluster cluster, JsonNode request) {
        this.cluster = cluster;
        this.request = request;
    }

    ObjectNode run() throws Exception {
        StreamExecutionEnvironment environment =
                new StreamExecutionEnvironment(RestoreCase.configuration(request));
        environment.setParallelism(request.get("parallelism").asInt());
        addQuery(environment);
        int tables = request.get("tables").size();
        try (Report report = new Report(caseId, tables, 0, 0);
                Cluster.Job job = cluster.submit(
                        RestoreCase.restored(environment, request), request.get("timeout_s").asInt())) {
            job.await("the rows", report.emitted.reached);
            // Its barrier is behind all rows: what they give is reported when it is complete.
            String savepoint =
                    job.savepoint(request.get("savepoint_to").asText(), RestoreCase.savepointFormat(request));
            ObjectNode answer = Json.object().put("savepoint", savepoint);
            answer.putArray("fired").addAll(report.fired);
            return answer;
        }
    }

    private void addQuery(StreamExecutionEnvironment environment) {
        StreamTableEnvironment sql =
                StreamTableEnvironment.create(environment, EnvironmentSettings.inStreamingMode());
        for (JsonNode table : request.get("tables")) {
            sql.createTemporaryView(table.get("name").asText(), sql.fromDataStream(rowsOf(environment, table)));
        }
        sql.toChangelogStream(sql.sqlQuery(request.get("query").asText()))
                .process(new Emitted(caseId), Types.STRING);
    }

    private DataStream<Row> rowsOf(StreamExecutionEnvironment environment, JsonNode table) {
        List<String> names = new ArrayList<>();
        List<String> types = new ArrayList<>();
        for (JsonNode column : table.get("columns")) {
            names.add(column.get(0).asText());
            types.add(column.get(1).asText());
        }
        TypeInformation<?>[] fields =
                types.stream().map(type -> ValueType.parse(type).information).toArray(TypeInformation[]::new);
        List<String> lines = new ArrayList<>();
        table.get("rows").forEach(row -> lines.add(Json.text(row)));
        UpdateSource source = new UpdateSource(caseId, lines, null);
        return environment.addSource(source, table.get("name").asText(), Types.STRING).setParallelism(1)
                .map(line -> rowOf(types, Json.parse(line)), Types.ROW_NAMED(names.toArray(new String[0]), fields))
                .setParallelism(1);
    }

    private static Row rowOf(List<String> types, JsonNode values) {
        Row row = new Row(types.size());
        for (int index = 0; index < types.size(); index++) {
            JsonNode value = values.get(index);
            row.setField(index, value.isNull() ? null : ValueType.parse(types.get(index)).fromJson(value));
        }
        return row;
    }

    /** Reports each row of the result's changelog as {@code {"row": [kind, field..]}}. */
    private static final class Emitted extends ProcessFunction<Row, String> {
        private static final long serialVersionUID = 1;
        private final String caseId;

        private Emitted(String caseId) {
            this.caseId = caseId;
        }

        @Override
        public void processElement(Row row, Context context, Collector<String> out) {
            ArrayNode fields = Json.array().add(row.getKind().shortString());
            for (int index = 0; index < row.getArity(); index++) {
                fields.addPOJO(row.getField(index));
            }
            ObjectNode entry = Json.object();
            entry.set("row", fields);
            Report.of(caseId).fire(entry);
        }
    }
}
