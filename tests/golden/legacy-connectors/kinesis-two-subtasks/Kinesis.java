import java.nio.file.Path;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.configuration.*;
import org.apache.flink.core.execution.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.RichParallelSourceFunction;
import org.apache.flink.streaming.connectors.kinesis.model.*;

/** A source with the state of FlinkKinesisConsumer: a union list of shards with their positions. */
public class Kinesis {
    public static class Consumer extends RichParallelSourceFunction<String> implements CheckpointedFunction {
        private volatile boolean run = true;
        private transient ListState<Tuple2<StreamShardMetadata, SequenceNumber>> state;
        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            state = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("Kinesis-Stream-Shard-State",
                new TupleTypeInfo<>(TypeInformation.of(StreamShardMetadata.class), TypeInformation.of(SequenceNumber.class))));
        }
        private static Tuple2<StreamShardMetadata, SequenceNumber> shard(String stream, int number, String parent, String sequence, long sub) {
            StreamShardMetadata shard = new StreamShardMetadata();
            shard.setStreamName(stream);
            shard.setShardId(String.format("shardId-%012d", number));
            shard.setParentShardId(parent);
            shard.setStartingHashKey("" + number * 100);
            shard.setEndingHashKey("" + (number * 100 + 99));
            shard.setStartingSequenceNumber("49590338271490256608559692538361571095921575989136588" + number);
            return Tuple2.of(shard, new SequenceNumber(sequence, sub));
        }
        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            state.clear();
            if (getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0) {
                state.add(shard("orders", 0, null, "49590338271490256608559692538361571095921575989136588898", -1));
                state.add(shard("orders", 2, "shardId-000000000000", "49590338271490256608559692538361571095921575989136588999", 3));
                state.add(shard("orders", 4, null, "SHARD_ENDING_SEQUENCE_NUM", -1));
            } else {
                state.add(shard("orders", 1, null, "EARLIEST_SEQUENCE_NUM", -1));
                state.add(shard("orders", 3, null, "LATEST_SEQUENCE_NUM", -1));
                state.add(shard("\u00fcbrige", 0, null, "AT_TIMESTAMP_SEQUENCE_NUM", -1));
            }
        }
        @Override public void run(SourceContext<String> context) throws Exception { while (run) Thread.sleep(20); }
        @Override public void cancel() { run = false; }
    }
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.BIND_PORT, "0");
        configuration.setString("execution.checkpointing.storage", "jobmanager");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        env.setMaxParallelism(128);
        env.addSource(new Consumer(), "shards").uid("shards").addSink(new DiscardingSink<String>());
        JobClient client = env.executeAsync("kinesis");
        for (int i = 0; i < 100 && client.getJobStatus().get() != org.apache.flink.api.common.JobStatus.RUNNING; i++) Thread.sleep(100);
        Thread.sleep(1500);
        System.out.println(client.triggerSavepoint(Path.of(arguments[0]).toUri().toString(), SavepointFormatType.CANONICAL).get());
        client.cancel().get();
        System.exit(0);
    }
}
