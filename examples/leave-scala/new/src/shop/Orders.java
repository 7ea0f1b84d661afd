package shop;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

import java.util.*;

/** The job of {@code scala-jobs/orders} in Java, for Flink 2.x. */
public class Orders {
    /** Lets the numbers of the old job pass, then holds. */
    public static class Feed implements FlatMapFunction<Long, Long> {
        public void flatMap(Long n, Collector<Long> out) throws Exception {
            if (n < 20) out.collect(n);
            else Thread.sleep(10);
        }
    }

    public static class ByKey implements KeySelector<Long, String> {
        public String getKey(Long n) {
            return "k" + n % 8;
        }
    }

    public static class Keep extends KeyedProcessFunction<String, Long, Long> {
        ValueState<Order> order;
        MapState<String, Line> byItem;
        ListState<Tuple2<String, Long>> visits;
        ValueState<Tuple2<Integer, Customer>> pair;
        ValueState<Row> triple;

        @Override
        public void open(OpenContext context) throws Exception {
            order = getRuntimeContext().getState(new ValueStateDescriptor<>("order", Order.class));
            byItem = getRuntimeContext().getMapState(new MapStateDescriptor<>("byItem", String.class, Line.class));
            visits = getRuntimeContext().getListState(new ListStateDescriptor<>("visits", TypeInformation.of(new TypeHint<Tuple2<String, Long>>() {})));
            pair = getRuntimeContext().getState(new ValueStateDescriptor<>("pair", TypeInformation.of(new TypeHint<Tuple2<Integer, Customer>>() {})));
            triple = getRuntimeContext().getState(new ValueStateDescriptor<>("triple", Types.ROW(Types.LONG, Types.DOUBLE, Types.LIST(Types.STRING))));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
            int n = number.intValue();
            Level[] levels = {Level.FREE, Level.GOLD, Level.PLATINUM};
            Customer who = new Customer("n\u00e4me-" + n, levels[n % 3], n % 2 == 0 ? 1990 + n : null);
            Order it = new Order();
            it.id = 1000L + n;
            it.customer = who;
            it.lines = new ArrayList<>();
            it.tags = new HashMap<>();
            for (int i = 0; i < n % 4; i++) {
                it.lines.add(new Line("sku-" + i, i + n, 0.5 * i));
                it.tags.put("sku-" + i, i + n);
            }
            it.note = n % 3 == 0 ? "note " + n : null;
            it.paid = n % 2 == 1;
            it.raw = new byte[n % 5];
            for (int i = 0; i < n % 5; i++) it.raw[i] = (byte) (i - n);
            order.update(it);
            byItem.put("item-" + n % 5, new Line("s" + n, n, n / 4.0));
            visits.add(Tuple2.of("page-" + n, n * 10000000000L));
            pair.update(Tuple2.of(n, who));
            List<String> names = new ArrayList<>();
            for (int i = 0; i < n % 3; i++) names.add("x" + i);
            triple.update(Row.of((long) n, n % 2 == 0 ? n / 8.0 : null, names));
            context.timerService().registerEventTimeTimer(1900000000000L + n);
        }
    }

    public static void build(StreamExecutionEnvironment env) {
        env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("numbers")
                .flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
                .keyBy(new ByKey()).process(new Keep()).returns(Types.LONG).uid("orders")
                .sinkTo(new DiscardingSink<>());
    }

    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        build(env);
        env.execute("orders");
    }
}
