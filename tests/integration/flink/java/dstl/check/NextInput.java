package dstl.check;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.api.operators.SimpleOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamFlatMap;
import org.apache.flink.util.Collector;

import java.lang.reflect.Field;
import java.util.concurrent.CompletableFuture;

/**
 * Stands in a job in place of its operator {@code feed}, which lets the first numbers pass and holds all others. It holds
 * all numbers of the source. When it is opened, it gives the numbers that the job gets next.
 */
final class NextInput implements FlatMapFunction<Long, Long> {
    private static final String UID = "feed";
    private static final long PAUSE_MILLIS = 10;
    // One job runs at a time, in this JVM.
    private static volatile boolean isOpen;
    private static volatile CompletableFuture<Void> given;

    private final long end;
    private long next;

    private NextInput(long first, long end) {
        this.next = first;
        this.end = end;
    }

    /** Puts it into the graph of a job. */
    static void replaceFeed(StreamGraph graph, long first, long end) throws ReflectiveOperationException {
        isOpen = false;
        given = new CompletableFuture<>();
        for (StreamNode node : graph.getStreamNodes()) {
            if (UID.equals(node.getTransformationUID())) {
                SimpleOperatorFactory<Long> factory =
                        SimpleOperatorFactory.of(new StreamFlatMap<>(new NextInput(first, end)));
                factory.setChainingStrategy(node.getOperatorFactory().getChainingStrategy());
                // Flink 1 has no setter.
                Field field = StreamNode.class.getDeclaredField("operatorFactory");
                field.setAccessible(true);
                field.set(node, factory);
                return;
            }
        }
        throw new IllegalArgumentException("The job has no operator with the uid " + UID + ".");
    }

    /** Gives the numbers. The result is done when all of them are given. */
    static CompletableFuture<Void> open() {
        isOpen = true;
        return given;
    }

    @Override
    public void flatMap(Long number, Collector<Long> out) throws InterruptedException {
        if (isOpen) {
            while (next < end) {
                out.collect(next++);
            }
            given.complete(null);
        }
        // The source has numbers without end.
        Thread.sleep(PAUSE_MILLIS);
    }
}
