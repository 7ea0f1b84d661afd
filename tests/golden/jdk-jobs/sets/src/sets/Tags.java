package sets;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Tags { public Set<String> names = new HashSet<>(); public SortedSet<String> sorted = new TreeSet<>(); public Set<Kind> kinds = new HashSet<>(); public Collection<Long> numbers = new ArrayList<>(); public BitSet bits = new BitSet(); public Tags() {} }
