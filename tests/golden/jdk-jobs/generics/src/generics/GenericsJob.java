package generics;
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
/** generic POJOs, subclasses of them, and generic classes that are no POJOs */
@SuppressWarnings({"unchecked", "rawtypes"})
public class GenericsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<Gen<Leaf>> leaf;
    ValueState<Gen<String>> text;
    ValueState<Sub> sub;
    ValueState<Gen> raw;
    ValueState<Both<String, Long>> both;
    ValueState<List<List<Leaf>>> lists;
    ValueState<Held<Leaf>> held;
    ValueState<Keeper> keeper;
    @Override public void open(OpenContext c) throws Exception {
      leaf = getRuntimeContext().getState(new ValueStateDescriptor<>("leaf", TypeInformation.of(new TypeHint<Gen<Leaf>>() {})));
      text = getRuntimeContext().getState(new ValueStateDescriptor<>("text", TypeInformation.of(new TypeHint<Gen<String>>() {})));
      sub = getRuntimeContext().getState(new ValueStateDescriptor<>("sub", Sub.class));
      raw = getRuntimeContext().getState(new ValueStateDescriptor<>("raw", Gen.class));
      both = getRuntimeContext().getState(new ValueStateDescriptor<>("both", TypeInformation.of(new TypeHint<Both<String, Long>>() {})));
      lists = getRuntimeContext().getState(new ValueStateDescriptor<>("lists", TypeInformation.of(new TypeHint<List<List<Leaf>>>() {})));
      held = getRuntimeContext().getState(new ValueStateDescriptor<>("held", TypeInformation.of(new TypeHint<Held<Leaf>>() {})));
      keeper = getRuntimeContext().getState(new ValueStateDescriptor<>("keeper", Keeper.class));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      Gen<Leaf> g = new Gen<>(); g.value = new Leaf(n, "a"); g.all.add(new Leaf(n, "b")); g.byName.put("c", new Leaf(-n, null)); leaf.update(g);
      Gen<String> t = new Gen<>(); t.value = "t" + n; t.all.add("u"); t.byName.put("v", "w" + n); text.update(t);
      Sub s = new Sub(); s.value = new Leaf(n, "s"); s.all.add(new Leaf(n, "t")); s.byName.put("x", new Leaf(n, "y")); s.own = n; sub.update(s);
      Gen r = new Gen(); r.value = "r" + n; r.all.add(n); r.byName.put("k", 1.5); raw.update(r);
      Both<String, Long> b = new Both<>(); b.first = "f" + n; b.second = n; b.firsts.add("g"); b.pairs.put("h", n); both.update(b);
      lists.update(new ArrayList<>(Arrays.asList(new ArrayList<>(Arrays.asList(new Leaf(n, "l"))), new LinkedList<>())));
      held.update(new Held<>(new Leaf(n, "h"), Arrays.asList(new Leaf(1, "i"), new Leaf(n, "j"))));
      Keeper k = new Keeper(); k.leaves = new Gen<>(); k.leaves.value = new Leaf(n, "k"); k.leaves.all.add(new Leaf(n, "m")); k.grid.add(new ArrayList<>(Arrays.asList(1L, n))); k.wild = new ArrayList<>(Arrays.asList(new Leaf(n, "w"))); keeper.update(k);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("generics").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("generics"); }
}
