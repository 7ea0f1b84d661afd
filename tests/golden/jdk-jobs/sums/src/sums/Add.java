package sums;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Add implements org.apache.flink.api.common.functions.ReduceFunction<Sum> { public Sum reduce(Sum a, Sum b) { return Sum.of(a, b); } }
