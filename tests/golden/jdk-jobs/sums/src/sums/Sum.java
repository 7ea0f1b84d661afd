package sums;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Sum { private final long total; private final List<Long> parts = new ArrayList<>(); public Sum(long n) { total = n; parts.add(n); } private Sum(Sum a, Sum b) { total = a.total + b.total; parts.addAll(a.parts); parts.addAll(b.parts); } public static Sum of(Sum a, Sum b) { return new Sum(a, b); } }
