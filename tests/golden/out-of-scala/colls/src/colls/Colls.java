package colls;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

import java.util.*;

/** The job of {@code scala-jobs/colls} in Java, for Flink 2.x. */
public class Colls {
    /** Lets the numbers of the old job pass, then holds. */
    public static class Feed implements FlatMapFunction<Long, Long> {
        public void flatMap(Long n, Collector<Long> out) throws Exception {
            if (n < 10) out.collect(n);
            else Thread.sleep(10);
        }
    }

    public static class ByKey implements KeySelector<Long, String> {
        public String getKey(Long n) {
            return "key-" + n % 6;
        }
    }

    public static class Keep extends KeyedProcessFunction<String, Long, Long> {
        ValueState<List<String>> list;
        ValueState<List<P>> seq;
        ValueState<Set<String>> set;
        ValueState<Map<Integer, P>> map;
        ValueState<Bag> bag;
        ListState<List<Long>> lists;
        MapState<String, Map<String, Long>> mm;
        ValueState<String[]> strings;
        ValueState<List<List<Row>>> deep;

        @Override
        public void open(OpenContext context) throws Exception {
            list = getRuntimeContext().getState(new ValueStateDescriptor<>("list", TypeInformation.of(new TypeHint<List<String>>() {})));
            seq = getRuntimeContext().getState(new ValueStateDescriptor<>("seq", TypeInformation.of(new TypeHint<List<P>>() {})));
            set = getRuntimeContext().getState(new ValueStateDescriptor<>("set", TypeInformation.of(new TypeHint<Set<String>>() {})));
            map = getRuntimeContext().getState(new ValueStateDescriptor<>("map", TypeInformation.of(new TypeHint<Map<Integer, P>>() {})));
            bag = getRuntimeContext().getState(new ValueStateDescriptor<>("bag", Bag.class));
            lists = getRuntimeContext().getListState(new ListStateDescriptor<>("lists", TypeInformation.of(new TypeHint<List<Long>>() {})));
            mm = getRuntimeContext().getMapState(new MapStateDescriptor<>("mm", Types.STRING, Types.MAP(Types.STRING, Types.LONG)));
            strings = getRuntimeContext().getState(new ValueStateDescriptor<>("strings", TypeInformation.of(String[].class)));
            deep = getRuntimeContext().getState(new ValueStateDescriptor<>("deep", Types.LIST(Types.LIST(Types.ROW(Types.INT, Types.STRING)))));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
            int n = number.intValue();
            List<String> names = new ArrayList<>();
            for (int i = 0; i < n % 4; i++) names.add("v" + n + i);
            list.update(names);
            List<P> points = new ArrayList<>();
            for (int i = 0; i < n % 3; i++) points.add(new P(i, "p" + n));
            seq.update(points);
            Set<String> marks = new HashSet<>();
            for (int i = 0; i <= n % 6; i++) marks.add("s" + i);
            set.update(marks);
            Map<Integer, P> byNumber = new HashMap<>();
            for (int i = 0; i < n % 4; i++) byNumber.put(i, new P(n, "m" + i));
            map.update(byNumber);
            Bag it = new Bag();
            it.a = new ArrayList<>();
            for (int i = 0; i < n % 3; i++) it.a.add(new P(i, "v"));
            it.b = new HashSet<>(Arrays.asList((long) n, n + 1L));
            it.c = new HashMap<>();
            it.c.put("a", new ArrayList<>(Arrays.asList(n, 2)));
            it.c.put("b", new ArrayList<>());
            it.d = new int[] {n, -n};
            it.e = new P[] {new P(n, "z")};
            it.f = new ArrayList<>(Arrays.asList(n / 2.0, 7.0));
            it.g = new ArrayList<>(Arrays.asList(n, null));
            bag.update(it);
            lists.add(new ArrayList<>(Arrays.asList((long) n, n * 10000000000L)));
            Map<String, Long> count = new HashMap<>();
            count.put("n", (long) n);
            mm.put("m" + n % 2, count);
            strings.update(new String[] {"a" + n, "", "\u00fc"});
            deep.update(new ArrayList<>(Arrays.asList(new ArrayList<>(Arrays.asList(Row.of(n, "d"), Row.of(n + 1, null))), new ArrayList<>())));
        }
    }

    public static void build(StreamExecutionEnvironment env) {
        env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source")
                .flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
                .keyBy(new ByKey()).process(new Keep()).returns(Types.LONG).uid("colls")
                .sinkTo(new DiscardingSink<>());
    }

    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        build(env);
        env.execute("colls");
    }
}
