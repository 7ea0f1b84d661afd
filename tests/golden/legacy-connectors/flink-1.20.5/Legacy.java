package legacy;

import java.util.*;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.*;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.functions.sink.*;
import org.apache.flink.streaming.api.functions.sink.filesystem.*;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.DefaultRollingPolicy;
import org.apache.flink.streaming.api.functions.source.*;
import org.apache.flink.streaming.runtime.operators.*;

/** Sources before FLIP-27 and sinks before Sink V2, of Flink and of a user, and operators that are neither. */
public class Legacy {
    /** A user's source with offsets that all subtasks share. */
    public static class Numbers extends RichParallelSourceFunction<Long> implements CheckpointedFunction {
        private volatile boolean run = true;
        private transient ListState<Tuple2<String, Long>> state;
        private long next;
        @Override public void initializeState(FunctionInitializationContext c) throws Exception {
            state = c.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("my-offsets", TypeInformation.of(new TypeHint<Tuple2<String, Long>>() {})));
        }
        @Override public void snapshotState(FunctionSnapshotContext c) throws Exception {
            state.clear(); state.add(Tuple2.of("part-" + getRuntimeContext().getIndexOfThisSubtask(), 100L + getRuntimeContext().getIndexOfThisSubtask()));
        }
        @Override public void run(SourceContext<Long> c) throws Exception { while (run) { synchronized (c.getCheckpointLock()) { c.collect(next++); } Thread.sleep(10); } }
        @Override public void cancel() { run = false; }
    }
    /** A queue's source that acknowledges messages, as the source of RabbitMQ. */
    public static class Queue extends MessageAcknowledgingSourceBase<Long, String> {
        private volatile boolean run = true;
        public Queue() { super(String.class); }
        @Override protected void acknowledgeIDs(long checkpoint, Set<String> ids) {}
        @Override public void run(SourceContext<Long> c) throws Exception { long n = 0; while (run) { synchronized (c.getCheckpointLock()) { addId("m" + n); c.collect(n++); } Thread.sleep(20); } }
        @Override public void cancel() { run = false; }
    }
    public static class Plain extends org.apache.flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction<Long, String, String> {
        public Plain() { super(StringSerializer.INSTANCE, StringSerializer.INSTANCE); }
        @Override protected void invoke(String t, Long v, Context c) {}
        @Override protected String beginTransaction() { return "txn-" + System.nanoTime() % 1000; }
        @Override protected void preCommit(String t) {}
        @Override protected void commit(String t) {}
        @Override protected void abort(String t) {}
    }
    /** Transactions that only Java reads. */
    public static class Handle implements java.io.Serializable { public final Object what; public Handle(Object what) { this.what = what; } }
    public static class Opaque extends TwoPhaseCommitSinkFunction<Long, Handle, Void> {
        public Opaque() { super(TypeInformation.of(Handle.class).createSerializer(new ExecutionConfig()), VoidSerializer.INSTANCE); }
        @Override protected void invoke(Handle t, Long v, Context c) {}
        @Override protected Handle beginTransaction() { return new Handle("h"); }
        @Override protected void preCommit(Handle t) {}
        @Override protected void commit(Handle t) {}
        @Override protected void abort(Handle t) {}
    }
    public static class Ahead extends GenericWriteAheadSink<Long> {
        public Ahead(CheckpointCommitter committer) throws Exception { super(committer, LongSerializer.INSTANCE, "ahead"); }
        @Override protected boolean sendValues(Iterable<Long> values, long checkpoint, long at) { return false; }
    }
    public static class Never extends CheckpointCommitter {
        @Override public void open() {}
        @Override public void close() {}
        @Override public void createResource() {}
        @Override public void commitCheckpoint(int subtask, long id) {}
        @Override public boolean isCheckpointCommitted(int subtask, long id) { return false; }
    }
    /** A user's sink that writes in batches. */
    public static class Batches extends RichSinkFunction<Long> implements CheckpointedFunction {
        private transient ListState<Long> state;
        private long last;
        @Override public void invoke(Long v, Context c) { last = v; }
        @Override public void initializeState(FunctionInitializationContext c) throws Exception { state = c.getOperatorStateStore().getListState(new ListStateDescriptor<>("batch", LongSerializer.INSTANCE)); }
        @Override public void snapshotState(FunctionSnapshotContext c) throws Exception { state.clear(); state.add(last); state.add(last + 1); }
    }
    /** Neither a source nor a sink; with keyed state if keyed. */
    public static class Buffer extends RichMapFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Long> state;
        private transient ValueState<Long> keyed;
        private final boolean isKeyed;
        public Buffer(boolean isKeyed) { this.isKeyed = isKeyed; }
        @Override public Long map(Long v) throws Exception { if (isKeyed) keyed.update(v); return v; }
        @Override public void initializeState(FunctionInitializationContext c) throws Exception {
            state = c.getOperatorStateStore().getListState(new ListStateDescriptor<>("buffer", LongSerializer.INSTANCE));
            if (isKeyed) keyed = c.getKeyedStateStore().getState(new ValueStateDescriptor<>("last", LongSerializer.INSTANCE));
        }
        @Override public void snapshotState(FunctionSnapshotContext c) throws Exception { state.clear(); state.add(7L); }
    }
    static void build(StreamExecutionEnvironment env, String out) throws Exception {
        DataStream<Long> sequence = env.addSource(new StatefulSequenceSource(0, 300)).uid("sequence").map(v -> { Thread.sleep(40); return v; }).returns(Types.LONG).uid("slow");
        sequence.map(v -> "row " + v).returns(Types.STRING).uid("text").addSink(StreamingFileSink.forRowFormat(new Path(out), new SimpleStringEncoder<String>()).withBucketAssigner(new org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner<String>() { @Override public String getBucketId(String s, Context c) { return "b=" + s.length(); } }).withRollingPolicy(DefaultRollingPolicy.builder().withMaxPartSize(new MemorySize(30)).build()).build()).uid("files");
        env.addSource(new Numbers()).uid("numbers").addSink(new Batches()).uid("batches");
        DataStream<Long> queue = env.addSource(new Queue()).uid("queue").setParallelism(1);
        queue.addSink(new Plain()).uid("plain");
        queue.addSink(new Opaque()).uid("opaque");
        queue.transform("ahead", Types.LONG, new Ahead(new Never())).uid("ahead");
        queue.map(new Buffer(false)).uid("buffer").keyBy(v -> v % 3).map(new Buffer(true)).uid("keyed").addSink(new DiscardingSink<>()).uid("nothing");
    }
    public static void main(String[] a) throws Exception {
        Configuration c = new Configuration();
        c.setString("rest.bind-port", "0");
        c.setString("taskmanager.numberOfTaskSlots", "4");
        c.setString("state.storage.fs.memory-threshold", "1mb");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, c);
        env.enableCheckpointing(300000);
        build(env, a[1]);
        JobClient job = env.executeAsync("legacy");
        while (job.getJobStatus().get() != org.apache.flink.api.common.JobStatus.RUNNING) Thread.sleep(100);
        for (int i = 0; ; i++) try { Thread.sleep(2000); System.out.println(job.triggerSavepoint(a[0], SavepointFormatType.CANONICAL).get()); break; } catch (Exception e) { if (i > 6) throw e; Throwable t = e; while (t.getCause() != null) t = t.getCause(); System.out.println(t.getMessage()); }
        job.cancel().get();
        System.exit(0);
    }
}
