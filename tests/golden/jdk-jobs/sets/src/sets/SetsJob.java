package sets;
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
/** sets of the JDK, alone and in a POJO */
@SuppressWarnings({"unchecked", "rawtypes"})
public class SetsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<HashSet<String>> hashSet;
    ValueState<LinkedHashSet<Long>> linkedHashSet;
    ValueState<TreeSet<String>> treeSet;
    ValueState<TreeSet<Long>> reversed;
    ValueState<EnumSet<Kind>> kinds;
    ValueState<BitSet> bits;
    ValueState<ConcurrentSkipListSet<Integer>> skipList;
    ValueState<CopyOnWriteArraySet<String>> copyOnWrite;
    ValueState<Set<LocalDate>> dates;
    ValueState<Tags> tags;
    @Override public void open(OpenContext c) throws Exception {
      hashSet = getRuntimeContext().getState(new ValueStateDescriptor<>("hashSet", TypeInformation.of(new TypeHint<HashSet<String>>() {})));
      linkedHashSet = getRuntimeContext().getState(new ValueStateDescriptor<>("linkedHashSet", TypeInformation.of(new TypeHint<LinkedHashSet<Long>>() {})));
      treeSet = getRuntimeContext().getState(new ValueStateDescriptor<>("treeSet", TypeInformation.of(new TypeHint<TreeSet<String>>() {})));
      reversed = getRuntimeContext().getState(new ValueStateDescriptor<>("reversed", TypeInformation.of(new TypeHint<TreeSet<Long>>() {})));
      kinds = getRuntimeContext().getState(new ValueStateDescriptor<>("kinds", TypeInformation.of(new TypeHint<EnumSet<Kind>>() {})));
      bits = getRuntimeContext().getState(new ValueStateDescriptor<>("bits", BitSet.class));
      skipList = getRuntimeContext().getState(new ValueStateDescriptor<>("skipList", TypeInformation.of(new TypeHint<ConcurrentSkipListSet<Integer>>() {})));
      copyOnWrite = getRuntimeContext().getState(new ValueStateDescriptor<>("copyOnWrite", TypeInformation.of(new TypeHint<CopyOnWriteArraySet<String>>() {})));
      dates = getRuntimeContext().getState(new ValueStateDescriptor<>("dates", TypeInformation.of(new TypeHint<Set<LocalDate>>() {})));
      tags = getRuntimeContext().getState(new ValueStateDescriptor<>("tags", Tags.class));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      HashSet<String> h = hashSet.value(); if (h == null) h = new HashSet<>(); h.add("h" + n); hashSet.update(h);
      LinkedHashSet<Long> l = linkedHashSet.value(); if (l == null) l = new LinkedHashSet<>(); l.add(-n); linkedHashSet.update(l);
      TreeSet<String> t = treeSet.value(); if (t == null) t = new TreeSet<>(); t.add("t" + n); treeSet.update(t);
      TreeSet<Long> r = reversed.value(); if (r == null) r = new TreeSet<>(Collections.reverseOrder()); r.add(n); reversed.update(r);
      kinds.update(n % 3 == 0 ? EnumSet.noneOf(Kind.class) : n % 3 == 1 ? EnumSet.of(Kind.RED, Kind.BLUE) : EnumSet.allOf(Kind.class));
      BitSet b = bits.value(); if (b == null) b = new BitSet(); b.set((int) n * 5); bits.update(b);
      ConcurrentSkipListSet<Integer> s = skipList.value(); if (s == null) s = new ConcurrentSkipListSet<>(); s.add((int) n); skipList.update(s);
      CopyOnWriteArraySet<String> w = copyOnWrite.value(); if (w == null) w = new CopyOnWriteArraySet<>(); w.add("w" + n); copyOnWrite.update(w);
      Set<LocalDate> d = dates.value(); if (d == null) d = new HashSet<>(); d.add(LocalDate.ofEpochDay(n * 1000)); dates.update(d);
      Tags g = tags.value(); if (g == null) g = new Tags(); g.names.add("x" + n); g.sorted.add("y" + n); g.kinds.add(Kind.values()[(int) n % 3]); g.numbers.add(n); g.bits.set((int) n); tags.update(g);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("sets").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("sets"); }
}
