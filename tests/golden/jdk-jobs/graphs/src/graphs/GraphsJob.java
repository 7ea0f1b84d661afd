package graphs;
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
/** shared references, deep inheritance, interfaces, abstract classes, null and enums with bodies in classes that are no POJOs */
@SuppressWarnings({"unchecked", "rawtypes"})
public class GraphsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<Node> node;
    ValueState<Shape> shape;
    ValueState<ArrayList<Shape>> shapes;
    ValueState<Deep> deep;
    ValueState<Object> any;
    ValueState<Holder> holder;
    @Override public void open(OpenContext c) throws Exception {
      node = getRuntimeContext().getState(new ValueStateDescriptor<>("node", Node.class));
      shape = getRuntimeContext().getState(new ValueStateDescriptor<>("shape", Shape.class));
      shapes = getRuntimeContext().getState(new ValueStateDescriptor<>("shapes", TypeInformation.of(new TypeHint<ArrayList<Shape>>() {})));
      deep = getRuntimeContext().getState(new ValueStateDescriptor<>("deep", Deep.class));
      any = getRuntimeContext().getState(new ValueStateDescriptor<>("any", Object.class));
      holder = getRuntimeContext().getState(new ValueStateDescriptor<>("holder", Holder.class));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      Node a = new Node("a" + n), b = new Node("b"); a.next = b; a.twin = b; a.tags.add("t"); a.tags.add("t"); b.children = new Node[]{new Node("c" + n), null, b.next}; b.extra = a.tags; node.update(a);
      shape.update(n % 2 == 0 ? new Circle(n / 4.0) : new Box((int) n, 2)); shapes.update(new ArrayList<>(Arrays.asList(new Circle(1), new Box(1, (int) n), null)));
      deep.update(new Deep(n)); any.update(n % 3 == 0 ? "text" + n : n % 3 == 1 ? (Object) n : new Box(3, (int) n)); Holder h = new Holder(); h.shape = new Circle(n); h.list = new ArrayList<>(Arrays.asList("x", n, new Box(1, 1))); h.mode = n % 2 == 0 ? Mode.FAST : Mode.SLOW; h.modes = new ArrayList<>(Arrays.asList(Mode.SLOW, Mode.FAST, null)); holder.update(h);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("graphs").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("graphs"); }
}
