package heap;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Cart { public List<String> items = new ArrayList<>(); public Map<String, Long> prices = new HashMap<>(); public Set<Integer> kinds = new TreeSet<>(); public Cart() {} }
