package tuples;
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
/** Kryo inside tuples, rows, arrays, list states and map states, also as a key of a map state */
@SuppressWarnings({"unchecked", "rawtypes"})
public class TuplesJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<Tuple3<String, Map<String, Leaf>, Set<Long>>> triple;
    ListState<Tuple2<Long, List<Leaf>>> pairs;
    MapState<LocalDate, List<Long>> byDay;
    MapState<String, Map<String, Leaf>> byName;
    MapState<Secret, Secret> bySecret;
    ValueState<Secret[]> secrets;
    ValueState<Row> row;
    ValueState<Either<String, Secret>> either;
    ListState<LocalDate> days;
    ValueState<List<Leaf>[]> grid;
    ValueState<List<Secret>> typed;
    ValueState<Map<String, LocalDate>> typedMap;
    @Override public void open(OpenContext c) throws Exception {
      triple = getRuntimeContext().getState(new ValueStateDescriptor<>("triple", TypeInformation.of(new TypeHint<Tuple3<String, Map<String, Leaf>, Set<Long>>>() {})));
      pairs = getRuntimeContext().getListState(new ListStateDescriptor<>("pairs", TypeInformation.of(new TypeHint<Tuple2<Long, List<Leaf>>>() {})));
      byDay = getRuntimeContext().getMapState(new MapStateDescriptor<>("byDay", TypeInformation.of(new TypeHint<LocalDate>() {}), TypeInformation.of(new TypeHint<List<Long>>() {})));
      byName = getRuntimeContext().getMapState(new MapStateDescriptor<>("byName", TypeInformation.of(new TypeHint<String>() {}), TypeInformation.of(new TypeHint<Map<String, Leaf>>() {})));
      bySecret = getRuntimeContext().getMapState(new MapStateDescriptor<>("bySecret", TypeInformation.of(new TypeHint<Secret>() {}), TypeInformation.of(new TypeHint<Secret>() {})));
      secrets = getRuntimeContext().getState(new ValueStateDescriptor<>("secrets", TypeInformation.of(new TypeHint<Secret[]>() {})));
      row = getRuntimeContext().getState(new ValueStateDescriptor<>("row", Types.ROW(Types.STRING, Types.GENERIC(LinkedList.class), Types.GENERIC(Secret.class))));
      either = getRuntimeContext().getState(new ValueStateDescriptor<>("either", new org.apache.flink.api.java.typeutils.EitherTypeInfo<>(Types.STRING, Types.GENERIC(Secret.class))));
      days = getRuntimeContext().getListState(new ListStateDescriptor<>("days", TypeInformation.of(new TypeHint<LocalDate>() {})));
      grid = getRuntimeContext().getState(new ValueStateDescriptor<>("grid", TypeInformation.of(new TypeHint<List<Leaf>[]>() {})));
      typed = getRuntimeContext().getState(new ValueStateDescriptor<>("typed", Types.LIST(Types.GENERIC(Secret.class))));
      typedMap = getRuntimeContext().getState(new ValueStateDescriptor<>("typedMap", Types.MAP(Types.STRING, Types.GENERIC(LocalDate.class))));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      Map<String, Leaf> m = new LinkedHashMap<>(); m.put("m" + n, new Leaf(n, null)); m.put("n", null); triple.update(Tuple3.of("t" + n, m, new TreeSet<>(Arrays.asList(n, -n))));
      pairs.add(Tuple2.of(n, new ArrayList<>(Arrays.asList(new Leaf(n, "p"), null)))); byDay.put(LocalDate.ofEpochDay(19000 + n % 3), Arrays.asList(n, 1L)); byName.put("b" + n % 2, new HashMap<>(Collections.singletonMap("i", new Leaf(n, "c")))); bySecret.put(new Secret("k" + n % 3, 1), new Secret("v" + n, (int) n));
      secrets.update(new Secret[]{new Secret("s" + n, 1), null}); row.update(Row.of("r" + n, new LinkedList<>(Arrays.asList("x", n)), n % 2 == 0 ? null : new Secret("q", (int) n))); either.update(n % 2 == 0 ? Either.Left("l" + n) : Either.Right(new Secret("e", (int) n))); days.add(LocalDate.ofEpochDay(n)); grid.update(new List[]{new ArrayList<>(Arrays.asList(new Leaf(n, "g"))), new LinkedList<>()}); typed.update(new ArrayList<>(Arrays.asList(new Secret("y" + n, 2)))); typedMap.update(new HashMap<>(Collections.singletonMap("d" + n, LocalDate.of(2000, 1, 1).plusDays(n))));
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("tuples").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("tuples"); }
}
