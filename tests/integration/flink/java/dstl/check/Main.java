package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Restores snapshots in real Flink, one after the other: a case is one JSON line on stdin, its answer one JSON line on
 * stdout. The first argument is a folder for temporary files. Ends when stdin ends.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        PrintStream answers = System.out;
        // Whatever Flink or a library prints must not mix with the answers.
        System.setOut(System.err);
        int status = 0;
        try (Cluster cluster = new Cluster(Path.of(arguments[0]))) {
            serve(cluster, answers);
        } catch (Throwable error) {
            error.printStackTrace();
            status = 1;
        }
        // Flink's threads would keep the JVM alive.
        System.exit(status);
    }

    private static void serve(Cluster cluster, PrintStream answers) throws IOException {
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            answers.println(Json.text(answer(cluster, line)));
            answers.flush();
        }
    }

    private static ObjectNode answer(Cluster cluster, String line) {
        try {
            JsonNode request = Json.parse(line);
            return run(cluster, request).put("ok", true);
        } catch (Throwable error) {
            error.printStackTrace();
            return Json.object().put("ok", false).put("error", causes(error));
        }
    }

    private static ObjectNode run(Cluster cluster, JsonNode request) throws Exception {
        if (request.hasNonNull("query")) {
            return new SqlCase(cluster, request).run();
        }
        if (request.hasNonNull("job")) {
            return new JobCase(cluster, request).run();
        }
        return request.hasNonNull("source")
                ? new SourceCase(cluster, request).run()
                : new RestoreCase(cluster, request).run();
    }

    /** The messages of an error and of its causes, outermost first, each once. */
    private static String causes(Throwable error) {
        List<String> messages = new ArrayList<>();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            String message = cause.getClass().getSimpleName() + ": " + cause.getMessage();
            if (messages.isEmpty() || !messages.get(messages.size() - 1).contains(message)) {
                messages.add(message);
            }
        }
        return String.join("; caused by ", messages);
    }
}
