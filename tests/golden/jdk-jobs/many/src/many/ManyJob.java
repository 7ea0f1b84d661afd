package many;
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
/** 3,000 keys in an incremental savepoint of RocksDB in its own form, parallelism 3 */
@SuppressWarnings({"unchecked", "rawtypes"})
public class ManyJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 3000) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 3000; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<Cart> cart;
    ValueState<LocalDate> since;
    ValueState<Long> count;
    MapState<String, ArrayDeque<Long>> byDay;
    @Override public void open(OpenContext c) throws Exception {
      cart = getRuntimeContext().getState(new ValueStateDescriptor<>("cart", Cart.class));
      since = getRuntimeContext().getState(new ValueStateDescriptor<>("since", LocalDate.class));
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
      byDay = getRuntimeContext().getMapState(new MapStateDescriptor<>("byDay", TypeInformation.of(new TypeHint<String>() {}), TypeInformation.of(new TypeHint<ArrayDeque<Long>>() {})));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      Cart k = cart.value(); if (k == null) k = new Cart(); k.items.add("i" + n); k.prices.put("p" + n % 7, n); k.kinds.add((int) n % 4); cart.update(k);
      since.update(LocalDate.ofEpochDay(n)); count.update(count.value() == null ? 1L : count.value() + 1); ArrayDeque<Long> q = new ArrayDeque<>(); q.add(n); q.add(-n); byDay.put("d" + n % 2, q); c.timerService().registerEventTimeTimer(1_000_000 + n);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("many").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("many"); }
}
