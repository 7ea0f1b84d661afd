package vec
import org.apache.flink.api.common.serialization.SerializerConfigImpl
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer
import org.apache.flink.core.memory.DataOutputSerializer
import scala.collection.{immutable, mutable}
object Color extends Enumeration { val Red, Green = Value; val Blue = Value(7, "blue") }
object Vectors {
  def main(args: Array[String]): Unit = {
    val values: Seq[(String, Any)] = Seq(
      "II" -> ((1, 2)), "IJ" -> ((1, 2L)), "ID" -> ((1, 2.5)), "JI" -> ((1L, 2)), "JJ" -> ((1L, -2L)), "JD" -> ((1L, 2.5)),
      "DI" -> ((1.5, 2)), "DJ" -> ((1.5, 2L)), "DD" -> ((1.5, 2.5)), "T1I" -> Tuple1(5), "T1J" -> Tuple1(-5L), "T1D" -> Tuple1(0.5),
      "T1S" -> Tuple1("a"), "SI" -> (("a", 2)), "CC" -> (('a', 'b')), "ZZ" -> ((true, false)), "ZI" -> ((true, 1)), "CI" -> (('a', 1)), "FF" -> ((1f, 2f)), "BI" -> ((1.toByte, 2)),
      "ZC" -> ((true, 'b')), "CZ" -> (('b', true)), "IC" -> ((5, 'b')), "IZ" -> ((5, true)), "DC" -> ((5.0, 'b')), "JZ" -> ((5L, true)), "JC" -> ((5L, 'c')),
      "enum" -> Color.Green, "enum7" -> Color.Blue, "enums" -> List(Color.Red, Color.Blue, Color.Red),
      "mbitset" -> mutable.BitSet(1, 5, 70), "bitset1" -> immutable.BitSet(1, 5), "bitset2" -> immutable.BitSet(1, 100), "bitsetN" -> immutable.BitSet(1, 500),
      "queue" -> immutable.Queue(1, 2), "stack" -> immutable.Stack(1, 2), "stream" -> Stream(1, 2), "stream0" -> Stream.empty,
      "range" -> (1 until 5), "rangeBy" -> (1 until 9 by 2), "nrange" -> (1L to 5L), "nrangeX" -> (1L until 5L),
      "arrayBuffer" -> mutable.ArrayBuffer(1, 2), "listBuffer" -> mutable.ListBuffer(1, 2), "mqueue" -> mutable.Queue(1, 2), "mset" -> mutable.Set(1, 2), "lhset" -> mutable.LinkedHashSet(2, 1),
      "mmap" -> mutable.Map(1 -> "a"), "lhmap" -> mutable.LinkedHashMap(2 -> "b", 1 -> "a"), "treemapM" -> mutable.TreeMap("b" -> 1, "a" -> 2), "trieMap" -> scala.collection.concurrent.TrieMap(1 -> 2),
      "wrappedArray" -> (Array(1, 2): mutable.WrappedArray[Int]), "wrappedRef" -> (Array("a", "b"): mutable.WrappedArray[String]), "arraySeq" -> mutable.ArraySeq(1, "a"),
      "stringBuilder" -> new StringBuilder("ab"), "wrappedString" -> (("ab": immutable.WrappedString)), "unit" -> (()), "indexedSeq" -> IndexedSeq(1, 2), "arrayStack" -> mutable.ArrayStack(1, 2),
      "sortedSet" -> immutable.SortedSet(3, 1), "reversed" -> immutable.TreeSet(3, 1)(Ordering.Int.reverse), "longmap" -> immutable.LongMap(5L -> "a"), "intmap" -> immutable.IntMap(5 -> "a"),
      "jlist" -> scala.collection.JavaConverters.seqAsJavaListConverter(Seq(1, 2)).asJava, "jmap" -> scala.collection.JavaConverters.mapAsJavaMapConverter(Map("a" -> 1)).asJava,
      "bufWrap" -> scala.collection.JavaConverters.asScalaBufferConverter(new java.util.ArrayList[Int](java.util.Arrays.asList(1, 2))).asScala, "jmapWrap" -> scala.collection.JavaConverters.mapAsScalaMapConverter(new java.util.HashMap[String, Int]() { }).asScala,
      "success" -> scala.util.Success(3), "failure" -> scala.util.Failure(new RuntimeException("no")), "duration" -> scala.concurrent.duration.Duration(5, "s"), "classtag" -> implicitly[scala.reflect.ClassTag[String]],
      "regex" -> "a.b".r, "bigint" -> BigInt(7), "bigdecimal" -> BigDecimal("1.50"), "someTuple" -> Some((1, 2)), "mapII" -> Map(1 -> 2), "mapSJ" -> Map("a" -> 2L), "listII" -> List((1, 2), (3, 4)), "listMap" -> immutable.ListMap(1 -> 2), "nested" -> Right(Some(List((1, 2.0)))),
      "vector" -> Vector.range(0, 40), "hashset" -> immutable.HashSet(1 to 6: _*), "set5" -> (1 to 5).toSet, "map5" -> (1 to 5).map(i => i -> i.toString).toMap, "mapView" -> Map(1 -> 2).mapValues(_ + 1), "filterKeys" -> Map(1 -> 2).filterKeys(_ > 0), "withDefault" -> Map(1 -> 2).withDefaultValue(0),
      "hashmap1" -> immutable.HashMap(1 -> 2), "hashset1" -> immutable.HashSet(1), "mtreeset" -> mutable.TreeSet(2, 1), "mlistmap" -> mutable.ListMap(1 -> 2), "open" -> mutable.OpenHashMap(1 -> 2),
      "mwith" -> mutable.Map(1 -> 2).withDefaultValue(0), "mlongmap" -> mutable.LongMap(1L -> 2), "anyref" -> mutable.AnyRefMap("a" -> 2), "listset" -> immutable.ListSet(1), "listset0" -> immutable.ListSet.empty,
      "set0" -> Set.empty, "map0" -> Map.empty, "longmap2" -> immutable.LongMap(1L -> 2, 3L -> 4), "longmap0" -> immutable.LongMap.empty, "intmap2" -> immutable.IntMap(1 -> 2, 3 -> 4), "intmap0" -> immutable.IntMap.empty,
      "bitset0" -> immutable.BitSet.empty, "mbitset0" -> mutable.BitSet.empty, "hashset0" -> immutable.HashSet.empty, "hashmap0" -> immutable.HashMap.empty, "wa0" -> (Array[Double](): mutable.WrappedArray[Double]), "waChar" -> (Array('a'): mutable.WrappedArray[Char]), "vector0" -> Vector.empty,
      "ZJ" -> ((true, 300L)), "ZD" -> ((true, 2.5)), "CJ" -> (('a', -7L)), "CD" -> (('a', 2.5)), "DZ" -> ((2.5, true)), "stack0" -> immutable.Stack.empty, "jlist2" -> new java.util.ArrayList[Any](java.util.Arrays.asList((1, 2L), None)), "failure" -> scala.util.Failure(new IllegalStateException("no")))
    for ((name, value) <- values) {
      val serializer = new KryoSerializer[Object](classOf[Object], new SerializerConfigImpl())
      val out = new DataOutputSerializer(64)
      val text = try {
        serializer.serialize(value.asInstanceOf[Object], out)
        val raw = out.getCopyOfBuffer
        val back = try { serializer.deserialize(new org.apache.flink.core.memory.DataInputDeserializer(raw)).toString } catch { case e: Throwable => "UNREADABLE " + e }
        raw.map(b => f"$b%02x").mkString + "\t" + back
      } catch { case e: Throwable => "FAILS " + e.getClass }
      println(name + "\t" + value.getClass.getName + "\t" + text.replace("\n", "\\n"))
    }
  }
}
