package maps;
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
/** maps of the JDK, alone and nested */
@SuppressWarnings({"unchecked", "rawtypes"})
public class MapsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<HashMap<String, Integer>> hashMap;
    ValueState<LinkedHashMap<Long, String>> linkedHashMap;
    ValueState<TreeMap<String, Long>> treeMap;
    ValueState<TreeMap<String, Long>> byLength;
    ValueState<Hashtable<String, Long>> hashtable;
    ValueState<ConcurrentHashMap<String, ArrayList<Long>>> concurrent;
    ValueState<ConcurrentSkipListMap<Integer, String>> skipList;
    ValueState<Properties> properties;
    ValueState<Map<String, TreeMap<Integer, ArrayList<String>>>> nested;
    ValueState<SortedMap> sorted;
    ValueState<Table> table;
    @Override public void open(OpenContext c) throws Exception {
      hashMap = getRuntimeContext().getState(new ValueStateDescriptor<>("hashMap", TypeInformation.of(new TypeHint<HashMap<String, Integer>>() {})));
      linkedHashMap = getRuntimeContext().getState(new ValueStateDescriptor<>("linkedHashMap", TypeInformation.of(new TypeHint<LinkedHashMap<Long, String>>() {})));
      treeMap = getRuntimeContext().getState(new ValueStateDescriptor<>("treeMap", TypeInformation.of(new TypeHint<TreeMap<String, Long>>() {})));
      byLength = getRuntimeContext().getState(new ValueStateDescriptor<>("byLength", TypeInformation.of(new TypeHint<TreeMap<String, Long>>() {})));
      hashtable = getRuntimeContext().getState(new ValueStateDescriptor<>("hashtable", TypeInformation.of(new TypeHint<Hashtable<String, Long>>() {})));
      concurrent = getRuntimeContext().getState(new ValueStateDescriptor<>("concurrent", TypeInformation.of(new TypeHint<ConcurrentHashMap<String, ArrayList<Long>>>() {})));
      skipList = getRuntimeContext().getState(new ValueStateDescriptor<>("skipList", TypeInformation.of(new TypeHint<ConcurrentSkipListMap<Integer, String>>() {})));
      properties = getRuntimeContext().getState(new ValueStateDescriptor<>("properties", Properties.class));
      nested = getRuntimeContext().getState(new ValueStateDescriptor<>("nested", TypeInformation.of(new TypeHint<Map<String, TreeMap<Integer, ArrayList<String>>>>() {})));
      sorted = getRuntimeContext().getState(new ValueStateDescriptor<>("sorted", SortedMap.class));
      table = getRuntimeContext().getState(new ValueStateDescriptor<>("table", Table.class));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      HashMap<String, Integer> h = hashMap.value(); if (h == null) h = new HashMap<>(); h.put("h" + n % 3, (int) n); h.put("none", null); hashMap.update(h);
      LinkedHashMap<Long, String> l = linkedHashMap.value(); if (l == null) l = new LinkedHashMap<>(); l.put(-n, "l" + n); linkedHashMap.update(l);
      TreeMap<String, Long> t = treeMap.value(); if (t == null) t = new TreeMap<>(); t.put("t" + n, n); treeMap.update(t);
      TreeMap<String, Long> b = byLength.value(); if (b == null) b = new TreeMap<>(String.CASE_INSENSITIVE_ORDER); b.put(n % 2 == 0 ? "Key" : "kEY" + n, n); byLength.update(b);
      Hashtable<String, Long> e = hashtable.value(); if (e == null) e = new Hashtable<>(); e.put("e" + n % 5, n); hashtable.update(e);
      ConcurrentHashMap<String, ArrayList<Long>> cc = concurrent.value(); if (cc == null) cc = new ConcurrentHashMap<>(); cc.computeIfAbsent("c" + n % 2, x -> new ArrayList<>()).add(n); concurrent.update(cc);
      ConcurrentSkipListMap<Integer, String> s = skipList.value(); if (s == null) s = new ConcurrentSkipListMap<>(); s.put((int) n, "s" + n); skipList.update(s);
      Properties p = new Properties(); p.setProperty("name", "p" + n); properties.update(p);
      Map<String, TreeMap<Integer, ArrayList<String>>> m = nested.value(); if (m == null) m = new HashMap<>(); m.computeIfAbsent("m" + n % 2, x -> new TreeMap<>()).computeIfAbsent((int) n, x -> new ArrayList<>()).add("v" + n); nested.update(m);
      sorted.update(new TreeMap<>(Collections.singletonMap("only" + n, n)));
      Table table0 = new Table(); table0.byName.put("x" + n, Arrays.asList(1L, n)); table0.ranks = new TreeMap<>(Comparator.reverseOrder()); table0.ranks.put(1, "a"); table0.ranks.put(2, "b" + n); table0.groups.put("g", new HashMap<>(Collections.singletonMap("i", new LinkedHashSet<>(Arrays.asList("z", "a"))))); table.update(table0);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("maps").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("maps"); }
}
