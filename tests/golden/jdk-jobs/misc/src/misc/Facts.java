package misc;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Facts { public AtomicInteger seen = new AtomicInteger(); public AtomicLong total = new AtomicLong(); public URI home; public StringBuilder name = new StringBuilder(); public UUID id; public OptionalInt maybe; public int[][] matrix; public Object anything; public Number number; public CharSequence word; public Facts() {} }
