package dstl.check;

import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

import java.util.ArrayList;
import java.util.List;

/** Emits the updates of one operator and, if there is one, a watermark; then stays until the job is cancelled. */
final class UpdateSource implements SourceFunction<String> {
    private static final long serialVersionUID = 1;

    private final String caseId;
    private final ArrayList<String> updates;
    private final Long watermark;
    private volatile boolean cancelled;

    UpdateSource(String caseId, List<String> updates, Long watermark) {
        this.caseId = caseId;
        this.updates = new ArrayList<>(updates);
        this.watermark = watermark;
    }

    @Override
    public void run(SourceContext<String> context) throws InterruptedException {
        // Under the lock no savepoint comes in between: it holds all updates or none.
        synchronized (context.getCheckpointLock()) {
            updates.forEach(context::collect);
            if (watermark != null) {
                context.emitWatermark(new Watermark(watermark));
            }
        }
        Report.of(caseId).emitted.arrive();
        synchronized (this) {
            while (!cancelled) {
                wait();
            }
        }
    }

    @Override
    public synchronized void cancel() {
        cancelled = true;
        notifyAll();
    }
}
