package org.apache.flink.agents.runtime.memory;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.agents.runtime.memory.MemoryObjectImpl.MemoryItem;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.util.Collector;

/** The states of the operator of Flink Agents: two memories, a number, and keys in work. */
public class Agents {
    static class Numbers implements SourceFunction<Long> {
        private volatile boolean run = true;
        @Override public void run(SourceContext<Long> context) throws Exception {
            for (long n = 0; n < 6; n++) synchronized (context.getCheckpointLock()) { context.collect(n); }
            while (run) Thread.sleep(20);
        }
        @Override public void cancel() { run = false; }
    }

    static class Act extends KeyedProcessFunction<String, Long, Long> implements CheckpointedFunction {
        private transient MapState<String, MemoryItem> sensory, shortTerm;
        private transient ValueState<Long> number;
        private transient ListState<Object> keys;

        @Override public void open(org.apache.flink.api.common.functions.OpenContext context) {
            sensory = memory("sensoryMemory");
            shortTerm = memory("shortTermMemory");
            number = getRuntimeContext().getState(new ValueStateDescriptor<>("messageSequenceNumber", Long.class));
        }

        private MapState<String, MemoryItem> memory(String name) {
            return getRuntimeContext().getMapState(new MapStateDescriptor<>(
                name, TypeInformation.of(String.class), TypeInformation.of(MemoryItem.class)));
        }

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            keys = context.getOperatorStateStore().getUnionListState(
                new ListStateDescriptor<>("currentProcessingKeys", TypeInformation.of(Object.class)));
        }

        @Override public void snapshotState(FunctionSnapshotContext context) {}

        @Override public void processElement(Long n, Context context, Collector<Long> out) throws Exception {
            Long before = number.value();
            number.update(before == null ? 0L : before + 1);
            shortTerm.put("", new MemoryItem("visits", "user", "seen", "note"));
            shortTerm.put("visits", new MemoryItem((Object) (before == null ? 1L : before + 2)));
            shortTerm.put("user", new MemoryItem("name", "score", "is_new"));
            shortTerm.put("user.name", new MemoryItem((Object) ("ü" + n)));
            shortTerm.put("user.score", new MemoryItem((Object) (n / 4.0)));
            shortTerm.put("user.is_new", new MemoryItem((Object) (before == null)));
            shortTerm.put("seen", new MemoryItem((Object) new ArrayList<>(List.of(n, "s" + n))));
            shortTerm.put("note", new MemoryItem((Object) new java.util.HashMap<>(Map.of("n", n))));
            if (n == 5) {
                sensory.put("", new MemoryItem(new String[] {"draft"}));
                sensory.put("draft", new MemoryItem((Object) null));
                keys.add(context.getCurrentKey());
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.BIND_PORT, "0");
        configuration.setString("execution.checkpointing.storage", "jobmanager");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        env.setMaxParallelism(128);
        env.addSource(new Numbers(), "numbers").uid("numbers").keyBy(n -> "user-" + n % 2)
            .process(new Act()).uid("agent").name("action-execute-operator").sinkTo(new org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink<>());
        JobClient client = env.executeAsync("agents");
        for (int i = 0; i < 100 && client.getJobStatus().get() != JobStatus.RUNNING; i++) Thread.sleep(100);
        Thread.sleep(2500);
        System.out.println(client.triggerSavepoint(Path.of(arguments[0]).toUri().toString(), SavepointFormatType.CANONICAL).get());
        client.cancel().get();
        System.exit(0);
    }
}
