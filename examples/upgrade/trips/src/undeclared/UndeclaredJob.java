package undeclared;
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
/** types that no class file shows: descriptors made by a helper, and a raw field that the new job declares with its type */
@SuppressWarnings({"unchecked", "rawtypes"})
public class UndeclaredJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<List<Line>> lines;
    ValueState<Tuple2<String, List<Long>>> pair;
    MapState<String, Set<Long>> groups;
    ListState<Map<String, Line>> log;
    @Override public void open(OpenContext c) throws Exception {
      lines = getRuntimeContext().getState(Kinds.value("lines", new TypeHint<List<Line>>() {}));
      pair = getRuntimeContext().getState(Kinds.value("pair", new TypeHint<Tuple2<String, List<Long>>>() {}));
      groups = getRuntimeContext().getMapState(Kinds.map("groups", new TypeHint<String>() {}, new TypeHint<Set<Long>>() {}));
      log = getRuntimeContext().getListState(Kinds.list("log", new TypeHint<Map<String, Line>>() {}));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      List<Line> l = lines.value(); if (l == null) l = new ArrayList<>(); l.add(new Line("p" + n, n)); lines.update(l);
      Tuple2<String, List<Long>> p = pair.value(); if (p == null) p = Tuple2.of("f", new ArrayList<>()); p.f1.add(n); pair.update(p);
      groups.put("g" + n % 3, new HashSet<>(Arrays.asList(n, 1L))); log.add(new HashMap<>(Collections.singletonMap("k" + n, new Line("q", -n))));
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("undeclared").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("undeclared"); }
}
