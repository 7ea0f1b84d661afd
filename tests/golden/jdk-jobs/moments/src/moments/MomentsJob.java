package moments;
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
/** the other classes of java.time, calendars and time zones */
@SuppressWarnings({"unchecked", "rawtypes"})
public class MomentsJob {
  /** lets the first events pass, then holds */
  public static class Feed implements FlatMapFunction<Long, Long> { public void flatMap(Long n, Collector<Long> o) throws Exception { if (n < 24) o.collect(n); else Thread.sleep(10); } }
  public static class ByKey implements KeySelector<Long, String> { public String getKey(Long v) { return "k" + v % 8; } }
  public static class Update extends KeyedProcessFunction<String, Long, Long> {
    ValueState<OffsetDateTime> offsetDateTime;
    ValueState<OffsetTime> offsetTime;
    ValueState<YearMonth> yearMonth;
    ValueState<Year> year;
    ValueState<MonthDay> monthDay;
    ValueState<ZoneOffset> offset;
    ValueState<ZoneId> zone;
    ValueState<Period> period;
    ValueState<LocalTime> time;
    ValueState<DayOfWeek> day;
    ValueState<Currency> currency;
    ValueState<Locale> locale;
    ValueState<TreeMap<LocalDate, Duration>> history;
    ValueState<Optional<LocalDateTime>> span;
    ValueState<Plan> plan;
    @Override public void open(OpenContext c) throws Exception {
      offsetDateTime = getRuntimeContext().getState(new ValueStateDescriptor<>("offsetDateTime", OffsetDateTime.class));
      offsetTime = getRuntimeContext().getState(new ValueStateDescriptor<>("offsetTime", OffsetTime.class));
      yearMonth = getRuntimeContext().getState(new ValueStateDescriptor<>("yearMonth", YearMonth.class));
      year = getRuntimeContext().getState(new ValueStateDescriptor<>("year", Year.class));
      monthDay = getRuntimeContext().getState(new ValueStateDescriptor<>("monthDay", MonthDay.class));
      offset = getRuntimeContext().getState(new ValueStateDescriptor<>("offset", ZoneOffset.class));
      zone = getRuntimeContext().getState(new ValueStateDescriptor<>("zone", ZoneId.class));
      period = getRuntimeContext().getState(new ValueStateDescriptor<>("period", Period.class));
      time = getRuntimeContext().getState(new ValueStateDescriptor<>("time", LocalTime.class));
      day = getRuntimeContext().getState(new ValueStateDescriptor<>("day", DayOfWeek.class));
      currency = getRuntimeContext().getState(new ValueStateDescriptor<>("currency", Currency.class));
      locale = getRuntimeContext().getState(new ValueStateDescriptor<>("locale", Locale.class));
      history = getRuntimeContext().getState(new ValueStateDescriptor<>("history", TypeInformation.of(new TypeHint<TreeMap<LocalDate, Duration>>() {})));
      span = getRuntimeContext().getState(new ValueStateDescriptor<>("span", TypeInformation.of(new TypeHint<Optional<LocalDateTime>>() {})));
      plan = getRuntimeContext().getState(new ValueStateDescriptor<>("plan", Plan.class));
    }
    @Override public void processElement(Long event, Context c, Collector<Long> o) throws Exception {
      long n = event;
      LocalDateTime at = LocalDateTime.of(2024, 2, 29, 23, 59, 58, (int) n * 1_000_003).minusHours(n * 997); ZoneOffset o3 = ZoneOffset.ofHoursMinutes((int) n % 12, 30);
      offsetDateTime.update(OffsetDateTime.of(at, o3)); offsetTime.update(OffsetTime.of(at.toLocalTime(), o3)); yearMonth.update(YearMonth.from(at)); year.update(Year.of(1990 + (int) n)); monthDay.update(MonthDay.from(at)); offset.update(o3);
      zone.update(ZoneId.of(n % 2 == 0 ? "Asia/Tokyo" : "America/New_York")); period.update(Period.of((int) n, -1, 40)); time.update(at.toLocalTime().withNano((int) n * 7919)); day.update(DayOfWeek.of(1 + (int) n % 7));
      currency.update(Currency.getInstance(n % 2 == 0 ? "EUR" : "JPY")); locale.update(n % 2 == 0 ? Locale.GERMANY : new Locale("pt", "BR"));
      TreeMap<LocalDate, Duration> h = history.value(); if (h == null) h = new TreeMap<>(); h.put(at.toLocalDate(), Duration.ofSeconds(-n, n * 13)); history.update(h); span.update(n % 3 == 0 ? Optional.empty() : Optional.of(at));
      Plan p = new Plan(); p.days.add(at.toLocalDate()); p.days.add(LocalDate.MIN.withYear(-44)); p.until = at.toLocalTime(); p.every = Optional.of(Duration.ofMillis(n)); p.zones.put("z", ZoneId.of("UTC")); plan.update(p);
    }
  }
  public static void build(StreamExecutionEnvironment env) {
    env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source").flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed")
      .keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("moments").sinkTo(new DiscardingSink<>());
  }
  public static void main(String[] args) throws Exception { StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(); build(env); env.execute("moments"); }
}
