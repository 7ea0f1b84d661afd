package misc;
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
/** atomics, optionals, URIs, patterns and other single values of the JDK */
@SuppressWarnings({"unchecked", "rawtypes"})
public class MiscJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<Facts> facts;
    ValueState<ArrayList<Object>> box;
    ValueState<URI> uri;
    ValueState<AtomicLong> count;
    ValueState<AtomicBoolean> flag;
    ValueState<StringBuilder> text;
    ValueState<OptionalInt> maybe;
    ValueState<OptionalDouble> ratio;
    ValueState<OptionalLong> big;
    ValueState<Class> kind;
    ValueState<Optional<List<Optional<String>>>> deep;
    @Override public void open(OpenContext c) throws Exception {
      facts = getRuntimeContext().getState(new ValueStateDescriptor<>("facts", Facts.class));
      box = getRuntimeContext().getState(new ValueStateDescriptor<>("box", TypeInformation.of(new TypeHint<ArrayList<Object>>() {})));
      uri = getRuntimeContext().getState(new ValueStateDescriptor<>("uri", URI.class));
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", AtomicLong.class));
      flag = getRuntimeContext().getState(new ValueStateDescriptor<>("flag", AtomicBoolean.class));
      text = getRuntimeContext().getState(new ValueStateDescriptor<>("text", StringBuilder.class));
      maybe = getRuntimeContext().getState(new ValueStateDescriptor<>("maybe", OptionalInt.class));
      ratio = getRuntimeContext().getState(new ValueStateDescriptor<>("ratio", OptionalDouble.class));
      big = getRuntimeContext().getState(new ValueStateDescriptor<>("big", OptionalLong.class));
      kind = getRuntimeContext().getState(new ValueStateDescriptor<>("kind", Class.class));
      deep = getRuntimeContext().getState(new ValueStateDescriptor<>("deep", TypeInformation.of(new TypeHint<Optional<List<Optional<String>>>>() {})));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      Facts f = facts.value(); if (f == null) f = new Facts(); f.seen.incrementAndGet(); f.total.addAndGet(n); f.home = URI.create("http://h" + n + ".example/a?b=c"); f.name.append(n); f.id = new UUID(n * 31, ~n); f.maybe = n % 2 == 0 ? OptionalInt.empty() : OptionalInt.of((int) -n); f.matrix = new int[][]{{1}, {}, {(int) n}}; f.anything = n % 2 == 0 ? (Object) new BigDecimal("1.50").multiply(BigDecimal.valueOf(n)) : (Object) new BigInteger("9").pow((int) n); f.number = n % 3 == 0 ? (Number) n : (Number) (n / 2.0); f.word = "w" + n; facts.update(f);
      box.update(new ArrayList<>(Arrays.asList(new java.sql.Timestamp(1_700_000_000_000L + n), new Date(1_700_000_000_000L + n), new UUID(n, n), BigDecimal.TEN, BigInteger.valueOf(-n), new BitSet(), URI.create("a:b"), new long[]{n}, new Object[]{n, "x"}, new AtomicInteger((int) n), String.class)));
      uri.update(URI.create("urn:x:" + n)); AtomicLong c0 = count.value(); if (c0 == null) c0 = new AtomicLong(); c0.addAndGet(n); count.update(c0); flag.update(new AtomicBoolean(n % 2 == 0)); text.update(new StringBuilder("t\u00e9").append(n)); maybe.update(n % 2 == 0 ? OptionalInt.empty() : OptionalInt.of((int) n * -70000)); ratio.update(OptionalDouble.of(n / 3.0)); big.update(n % 2 == 0 ? OptionalLong.of(n << 40) : OptionalLong.empty()); kind.update(n % 2 == 0 ? String.class : int.class); deep.update(Optional.of(new ArrayList<>(Arrays.asList(Optional.of("d" + n), Optional.empty()))));
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("misc").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("misc"); }
}
