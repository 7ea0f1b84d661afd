package records;
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
/** records with collections, and POJOs with getters and setters */
@SuppressWarnings({"unchecked", "rawtypes"})
public class RecordsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<Trip> trip;
    ListState<Trip> trips;
    ValueState<Bean> bean;
    MapState<String, Bean> beans;
    @Override public void open(OpenContext c) throws Exception {
      trip = getRuntimeContext().getState(new ValueStateDescriptor<>("trip", Trip.class));
      trips = getRuntimeContext().getListState(new ListStateDescriptor<>("trips", TypeInformation.of(new TypeHint<Trip>() {})));
      bean = getRuntimeContext().getState(new ValueStateDescriptor<>("bean", Bean.class));
      beans = getRuntimeContext().getMapState(new MapStateDescriptor<>("beans", TypeInformation.of(new TypeHint<String>() {}), TypeInformation.of(new TypeHint<Bean>() {})));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      Trip t = new Trip(n, "t" + n, new ArrayList<>(Arrays.asList(new Stop("a", n), new Stop("b", -n))), new HashMap<>(Collections.singletonMap("c", n)), LocalDate.of(2024, 1, 1).plusDays(n), n % 2 == 0 ? Optional.empty() : Optional.of("o")); trip.update(t); trips.add(t);
      Bean b = new Bean(); b.setId((int) n); b.setNames(new ArrayList<>(Arrays.asList("n" + n, "m"))); b.setActive(n % 2 == 0); b.setStops(new HashSet<>(Arrays.asList(new Stop("s", n)))); bean.update(b); beans.put("b" + n % 3, b);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("records").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("records"); }
}
