package meters

import org.apache.flink.api.common.functions.ReduceFunction
import org.apache.flink.api.common.state._
import org.apache.flink.api.java.functions.KeySelector
import org.apache.flink.changelog.fs.FsStateChangelogOptions
import org.apache.flink.configuration._
import org.apache.flink.runtime.state.{FunctionInitializationContext, FunctionSnapshotContext}
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction
import org.apache.flink.streaming.api.environment.{StreamExecutionEnvironment => JavaEnvironment}
import org.apache.flink.streaming.api.functions.KeyedProcessFunction
import org.apache.flink.streaming.api.functions.sink.DiscardingSink
import org.apache.flink.streaming.api.functions.source.SourceFunction
import org.apache.flink.streaming.api.scala._
import org.apache.flink.util.Collector

import java.time.Duration
import scala.util.Try

object Level extends Enumeration {
  type Level = Value
  val Low, High, Alarm = Value
}
case class Place(city: String, floor: Int)
case class Reading(at: Long, place: Place, value: Option[Double], level: Level.Level, tags: Set[String])
case class Input(meter: String, n: Int)

/** What the source and the main method know of each other. */
object Gate {
  @volatile var completed: Long = 0
  @volatile var emittedAt: Long = -1
}

/** The numbers below 30; those below 50 after the state has been materialized once. */
class Feed extends SourceFunction[Input] with CheckpointListener {
  @volatile private var running = true
  private def emit(ctx: SourceFunction.SourceContext[Input], numbers: Range): Unit =
    ctx.getCheckpointLock.synchronized(numbers.foreach(n => ctx.collect(Input("meter-" + n % 6, n))))
  override def run(ctx: SourceFunction.SourceContext[Input]): Unit = {
    emit(ctx, 0 until 30)
    val start = System.currentTimeMillis
    while (running && System.currentTimeMillis - start < 9000) Thread.sleep(20)
    emit(ctx, 30 until 50)
    Gate.emittedAt = Gate.completed
    while (running) Thread.sleep(20)
  }
  override def cancel(): Unit = running = false
  override def notifyCheckpointComplete(id: Long): Unit = Gate.completed = id
}

class Keep extends KeyedProcessFunction[String, Input, Place] with CheckpointedFunction {
  private var last: ValueState[Reading] = _
  private var fresh: ValueState[Option[Place]] = _
  private var parsed: ValueState[Try[Int]] = _
  private var history: ListState[(Long, Level.Level)] = _
  private var byPlace: MapState[Place, Either[String, Long]] = _
  private var total: ReducingState[(Int, Long)] = _
  private var places: ListState[Place] = _

  override def open(configuration: Configuration): Unit = {
    val context = getRuntimeContext
    last = context.getState(new ValueStateDescriptor("last", createTypeInformation[Reading]))
    val expiring = new ValueStateDescriptor("fresh", createTypeInformation[Option[Place]])
    expiring.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(3650)).build())
    fresh = context.getState(expiring)
    parsed = context.getState(new ValueStateDescriptor("parsed", createTypeInformation[Try[Int]]))
    history = context.getListState(new ListStateDescriptor("history", createTypeInformation[(Long, Level.Level)]))
    byPlace = context.getMapState(new MapStateDescriptor("byPlace", createTypeInformation[Place], createTypeInformation[Either[String, Long]]))
    total = context.getReducingState(new ReducingStateDescriptor("total", new Sum, createTypeInformation[(Int, Long)]))
  }
  override def processElement(in: Input, ctx: KeyedProcessFunction[String, Input, Place]#Context, out: Collector[Place]): Unit = {
    val n = in.n
    val place = Place("c\u00efty-" + n % 4, n % 3)
    val tags = (0 until n % 4).map("t" + _).toSet
    last.update(Reading(1000L * n, place, if (n % 2 == 0) Some(n / 4.0) else None, Level(n % 3), tags))
    fresh.update(if (n % 5 == 0) None else Some(place))
    parsed.update(Try(n))
    history.add((n * 10000000000L, Level((n + 1) % 3)))
    if (n % 7 == 6) byPlace.remove(place) else byPlace.put(place, if (n % 2 == 0) Left("left " + n) else Right(n.toLong))
    total.add((1, n.toLong))
    if (n % 10 == 9) history.clear()
    ctx.timerService().registerEventTimeTimer(9000000L + n)
    if (n % 4 == 0) ctx.timerService().deleteEventTimeTimer(9000000L + n - 6)
    places.add(place)
    out.collect(place)
  }
  override def initializeState(context: FunctionInitializationContext): Unit =
    places = context.getOperatorStateStore.getListState(new ListStateDescriptor("places", createTypeInformation[Place]))
  override def snapshotState(context: FunctionSnapshotContext): Unit = ()
}

class ByMeter extends KeySelector[Input, String] {
  override def getKey(in: Input): String = in.meter
}
class ByPlace extends KeySelector[Place, Place] {
  override def getKey(place: Place): Place = place
}

class Sum extends ReduceFunction[(Int, Long)] {
  override def reduce(one: (Int, Long), other: (Int, Long)): (Int, Long) = (one._1 + other._1, one._2 + other._2)
}

/** Keys of a case class. */
class Count extends KeyedProcessFunction[Place, Place, String] {
  private var visits: ValueState[Long] = _
  override def open(configuration: Configuration): Unit =
    visits = getRuntimeContext.getState(new ValueStateDescriptor("visits", createTypeInformation[Long]))
  override def processElement(place: Place, ctx: KeyedProcessFunction[Place, Place, String]#Context, out: Collector[String]): Unit = {
    visits.update(visits.value() + 1)
    ctx.timerService().registerProcessingTimeTimer(4000000000000L + place.floor)
  }
}

/** Arguments: the state backend, and the folder of checkpoints. */
object Meters {
  def main(args: Array[String]): Unit = {
    val conf = new Configuration
    conf.set(StateBackendOptions.STATE_BACKEND, args(0))
    conf.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + args(1) + "/checkpoints")
    conf.set(CheckpointingOptions.FS_SMALL_FILE_THRESHOLD, MemorySize.ZERO)
    conf.set(StateChangelogOptions.ENABLE_STATE_CHANGE_LOG, java.lang.Boolean.TRUE)
    conf.set(StateChangelogOptions.STATE_CHANGE_LOG_STORAGE, "filesystem")
    conf.set(StateChangelogOptions.PERIODIC_MATERIALIZATION_INTERVAL, Duration.ofMillis(3000))
    conf.set(FsStateChangelogOptions.BASE_PATH, "file://" + args(1) + "/dstl")
    conf.setString("execution.checkpointing.interval", "200 ms")
    conf.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION")
    val underlying = JavaEnvironment.createLocalEnvironment(2, conf)
    underlying.setMaxParallelism(128)
    val env = new StreamExecutionEnvironment(underlying)
    env.addSource(new Feed).uid("feed").name("feed")
      .keyBy(new ByMeter).process(new Keep).uid("meters").name("meters")
      .keyBy(new ByPlace).process(new Count).uid("places").name("places")
      .addSink(new DiscardingSink[String]).uid("sink")
    val client = env.executeAsync("meters")
    while (Gate.emittedAt < 0 || Gate.completed < Gate.emittedAt + 2) Thread.sleep(20)
    client.cancel().get()
    System.exit(0)
  }
}
