package lists;
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
/** lists and queues of the JDK, alone */
@SuppressWarnings({"unchecked", "rawtypes"})
public class ListsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<ArrayList<String>> arrayList;
    ValueState<LinkedList<Long>> linkedList;
    ValueState<ArrayDeque<String>> deque;
    ValueState<Vector<Integer>> vector;
    ValueState<Stack<String>> stack;
    ValueState<PriorityQueue<Long>> queue;
    ValueState<PriorityQueue<String>> reversed;
    ValueState<CopyOnWriteArrayList<Long>> copyOnWrite;
    ValueState<ConcurrentLinkedQueue<String>> linked;
    ValueState<LinkedBlockingDeque<Long>> blocking;
    ValueState<List> asList;
    ValueState<List> some;
    ValueState<ArrayList<Object>> mixed;
    @Override public void open(OpenContext c) throws Exception {
      arrayList = getRuntimeContext().getState(new ValueStateDescriptor<>("arrayList", TypeInformation.of(new TypeHint<ArrayList<String>>() {})));
      linkedList = getRuntimeContext().getState(new ValueStateDescriptor<>("linkedList", TypeInformation.of(new TypeHint<LinkedList<Long>>() {})));
      deque = getRuntimeContext().getState(new ValueStateDescriptor<>("deque", TypeInformation.of(new TypeHint<ArrayDeque<String>>() {})));
      vector = getRuntimeContext().getState(new ValueStateDescriptor<>("vector", TypeInformation.of(new TypeHint<Vector<Integer>>() {})));
      stack = getRuntimeContext().getState(new ValueStateDescriptor<>("stack", TypeInformation.of(new TypeHint<Stack<String>>() {})));
      queue = getRuntimeContext().getState(new ValueStateDescriptor<>("queue", TypeInformation.of(new TypeHint<PriorityQueue<Long>>() {})));
      reversed = getRuntimeContext().getState(new ValueStateDescriptor<>("reversed", TypeInformation.of(new TypeHint<PriorityQueue<String>>() {})));
      copyOnWrite = getRuntimeContext().getState(new ValueStateDescriptor<>("copyOnWrite", TypeInformation.of(new TypeHint<CopyOnWriteArrayList<Long>>() {})));
      linked = getRuntimeContext().getState(new ValueStateDescriptor<>("linked", TypeInformation.of(new TypeHint<ConcurrentLinkedQueue<String>>() {})));
      blocking = getRuntimeContext().getState(new ValueStateDescriptor<>("blocking", TypeInformation.of(new TypeHint<LinkedBlockingDeque<Long>>() {})));
      asList = getRuntimeContext().getState(new ValueStateDescriptor<>("asList", List.class));
      some = getRuntimeContext().getState(new ValueStateDescriptor<>("some", List.class));
      mixed = getRuntimeContext().getState(new ValueStateDescriptor<>("mixed", TypeInformation.of(new TypeHint<ArrayList<Object>>() {})));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      ArrayList<String> a = arrayList.value(); if (a == null) a = new ArrayList<>(); a.add("a" + n); a.add(null); a.add(""); arrayList.update(a);
      LinkedList<Long> l = linkedList.value(); if (l == null) l = new LinkedList<>(); l.addFirst(n); l.add(null); linkedList.update(l);
      ArrayDeque<String> d = deque.value(); if (d == null) d = new ArrayDeque<>(); d.addLast("d" + n); d.addFirst("f"); deque.update(d);
      Vector<Integer> v = vector.value(); if (v == null) v = new Vector<>(); v.add((int) -n); vector.update(v);
      Stack<String> s = stack.value(); if (s == null) s = new Stack<>(); s.push("s" + n); stack.update(s);
      PriorityQueue<Long> q = queue.value(); if (q == null) q = new PriorityQueue<>(); q.add(100 - n); queue.update(q);
      PriorityQueue<String> r = reversed.value(); if (r == null) r = new PriorityQueue<>(Comparator.<String>reverseOrder()); r.add("r" + n); reversed.update(r);
      CopyOnWriteArrayList<Long> w = copyOnWrite.value(); if (w == null) w = new CopyOnWriteArrayList<>(); w.add(n << 33); copyOnWrite.update(w);
      ConcurrentLinkedQueue<String> k = linked.value(); if (k == null) k = new ConcurrentLinkedQueue<>(); k.add("k" + n); linked.update(k);
      LinkedBlockingDeque<Long> b = blocking.value(); if (b == null) b = new LinkedBlockingDeque<>(); b.add(n); blocking.update(b);
      asList.update(Arrays.asList("x", "y" + n, null));
      some.update(n % 4 == 0 ? Collections.emptyList() : n % 4 == 1 ? Collections.singletonList("one" + n) : n % 4 == 2 ? new LinkedList<>(Arrays.asList(n, 2.5)) : new ArrayList<>(Collections.nCopies(3, "c" + n)));
      mixed.update(new ArrayList<>(Arrays.asList(Collections.emptyMap(), Collections.emptySet(), Collections.singleton("s" + n), Collections.singletonMap("k", n), Arrays.asList(1, 2), new int[]{1, (int) n}, new String[]{"p", null}, 'c', (short) 3, (byte) 4, 1.5f, null)));
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("lists").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("lists"); }
}
