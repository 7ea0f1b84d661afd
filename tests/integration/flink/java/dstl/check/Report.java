package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/** What the tasks of one case tell. The tasks run in this JVM and find it by the id of the case. */
final class Report implements AutoCloseable {
    private static final Map<String, Report> OPEN = new ConcurrentHashMap<>();

    /** Done when a number of tasks have arrived. */
    static final class Milestone {
        final CompletableFuture<Void> reached = new CompletableFuture<>();
        private final AtomicInteger missing;

        Milestone(int tasks) {
            missing = new AtomicInteger(tasks);
        }

        void arrive() {
            if (missing.decrementAndGet() == 0) {
                reached.complete(null);
            }
        }
    }

    final Queue<ObjectNode> entries = new ConcurrentLinkedQueue<>();
    final Queue<ObjectNode> fired = new ConcurrentLinkedQueue<>();
    /** All subtasks have reported their entries. */
    final Milestone restored;
    /** All sources have emitted their updates. */
    final Milestone emitted;
    /** The watermark has passed all subtasks: its timers have fired. */
    final Milestone advanced;
    /** All timers and windows have fired that are waited for. */
    final Milestone due;
    private final String caseId;

    Report(String caseId, int sources, int subtasks, int fires) {
        this.caseId = caseId;
        restored = new Milestone(subtasks);
        emitted = new Milestone(sources);
        advanced = new Milestone(subtasks);
        due = new Milestone(fires);
        OPEN.put(caseId, this);
    }

    static Report of(String caseId) {
        Report report = OPEN.get(caseId);
        if (report == null) {
            throw new IllegalStateException("case " + caseId + " is over");
        }
        return report;
    }

    void fire(ObjectNode entry) {
        fired.add(entry);
        due.arrive();
    }

    @Override
    public void close() {
        OPEN.remove(caseId);
    }
}
