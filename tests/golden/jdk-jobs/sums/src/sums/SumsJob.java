package sums;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.*;
import org.apache.flink.util.Collector;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
/** reducing and aggregating state whose accumulators go to Kryo, and state with a time to live */
@SuppressWarnings({"unchecked", "rawtypes"})
public class SumsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ReducingState<Sum> sum;
    AggregatingState<Long, Long> distinct;
    AggregatingState<Long, Long> last;
    ListState<List<String>> log;
    ListState<Sum> sums;
    @Override public void open(OpenContext c) throws Exception {
      sum = getRuntimeContext().getReducingState(new ReducingStateDescriptor<>("sum", new Add(), Sum.class));
      distinct = getRuntimeContext().getAggregatingState(new AggregatingStateDescriptor<>("distinct", new Distinct(), TypeInformation.of(new TypeHint<HashSet<Long>>() {})));
      last = getRuntimeContext().getAggregatingState(new AggregatingStateDescriptor<>("last", new Last(), TypeInformation.of(new TypeHint<List<Long>>() {})));
      log = getRuntimeContext().getListState(new ListStateDescriptor<>("log", TypeInformation.of(new TypeHint<List<String>>() {})));
      sums = getRuntimeContext().getListState(new ListStateDescriptor<>("sums", TypeInformation.of(new TypeHint<Sum>() {})));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      sum.add(new Sum(n)); distinct.add(n % 3); last.add(n); log.add(new ArrayList<>(Arrays.asList("l" + n, null))); sums.add(new Sum(-n));
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("sums").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("sums"); }
}
