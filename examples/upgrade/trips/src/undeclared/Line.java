package undeclared;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Line { public String product; public long amount; public Line() {} public Line(String p, long a) { product = p; amount = a; } }
