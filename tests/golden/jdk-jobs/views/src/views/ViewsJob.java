package views;
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
/** immutable, unmodifiable and synchronized collections, which Flink 1.20.5 writes and cannot read */
@SuppressWarnings({"unchecked", "rawtypes"})
public class ViewsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<View> view;
    ValueState<Hidden> hidden;
    @Override public void open(OpenContext c) throws Exception {
      view = getRuntimeContext().getState(new ValueStateDescriptor<>("view", View.class));
      hidden = getRuntimeContext().getState(new ValueStateDescriptor<>("hidden", Hidden.class));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      boolean plain = Boolean.getBoolean("plain");
      List<String> ofs = List.of("a", "b" + n, "c"); Map<String, Long> mapOf = Map.of("k" + n, n, "l", 1L); Set<Integer> setOf = Set.of(1, (int) n + 2);
      List<String> fixed = Collections.unmodifiableList(new ArrayList<>(Arrays.asList("u" + n, "w"))); Map<String, Long> fixedMap = Collections.unmodifiableMap(new HashMap<>(Collections.singletonMap("um", n))); Set<Integer> fixedSet = Collections.unmodifiableSet(new HashSet<>(Collections.singleton((int) n)));
      List<String> locked = Collections.synchronizedList(new ArrayList<>(Arrays.asList("s" + n))); Collection<String> all = Collections.unmodifiableList(new LinkedList<>(Arrays.asList("q" + n)));
      if (plain) { ofs = new ArrayList<>(ofs); mapOf = new HashMap<>(mapOf); setOf = new HashSet<>(setOf); fixed = new ArrayList<>(fixed); fixedMap = new HashMap<>(fixedMap); fixedSet = new HashSet<>(fixedSet); locked = new ArrayList<>(locked); all = new ArrayList<>(all); }
      View v = new View(); v.ofs = ofs; v.mapOf = mapOf; v.setOf = setOf; v.fixed = fixed; v.fixedMap = fixedMap; v.fixedSet = fixedSet; v.locked = locked; v.all = all; view.update(v);
      hidden.update(new Hidden(ofs, mapOf, setOf, fixed, fixedMap, fixedSet, locked));
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("views").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("views"); }
}
