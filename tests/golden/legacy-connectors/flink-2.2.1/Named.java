package named;

import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;

/** A source and a sink of a user in Flink 2, whose operators have names, and an operator that is neither. */
public class Named {
    public static class Numbers extends RichParallelSourceFunction<Long> implements CheckpointedFunction {
        private volatile boolean run = true;
        private transient ListState<Long> state;
        private long next;
        @Override public void initializeState(FunctionInitializationContext c) throws Exception { state = c.getOperatorStateStore().getListState(new ListStateDescriptor<>("numbers", LongSerializer.INSTANCE)); }
        @Override public void snapshotState(FunctionSnapshotContext c) throws Exception { state.clear(); state.add(100L); }
        @Override public void run(SourceContext<Long> c) throws Exception { while (run) { synchronized (c.getCheckpointLock()) { c.collect(next++); } Thread.sleep(10); } }
        @Override public void cancel() { run = false; }
    }
    public static class Batches extends RichSinkFunction<Long> implements CheckpointedFunction {
        private transient ListState<Long> state;
        @Override public void initializeState(FunctionInitializationContext c) throws Exception { state = c.getOperatorStateStore().getListState(new ListStateDescriptor<>("batch", LongSerializer.INSTANCE)); }
        @Override public void snapshotState(FunctionSnapshotContext c) throws Exception { state.clear(); state.add(1L); state.add(2L); }
    }
    public static class Buffer extends RichMapFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Long> state;
        @Override public Long map(Long v) { return v; }
        @Override public void initializeState(FunctionInitializationContext c) throws Exception { state = c.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("buffer", LongSerializer.INSTANCE)); }
        @Override public void snapshotState(FunctionSnapshotContext c) throws Exception { state.clear(); state.add(7L); }
    }
    public static void main(String[] a) throws Exception {
        Configuration c = new Configuration();
        c.setString("rest.bind-port", "0");
        c.setString("execution.checkpointing.data-inline-threshold", "1mb");
        c.setString("state.storage.fs.memory-threshold", "1mb");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, c);
        env.enableCheckpointing(300000);
        env.addSource(new Numbers()).uid("numbers").map(new Buffer()).uid("buffer").addSink(new Batches()).uid("batches");
        JobClient job = env.executeAsync("named");
        for (int i = 0; ; i++) try { Thread.sleep(2000); System.out.println(job.triggerSavepoint(a[0], SavepointFormatType.CANONICAL).get()); break; } catch (Exception e) { if (i > 6) throw e; }
        job.cancel().get();
        System.exit(0);
    }
}
