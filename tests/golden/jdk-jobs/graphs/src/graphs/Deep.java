package graphs;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Deep extends Middle<Long> { private final char sign; private final float[] floats; public Deep(long n) { base = n; middle = -n; all.add(n); sign = (char) ('A' + n % 26); floats = new float[]{n, 0.5f}; } }
