package maps;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Table { public Map<String, List<Long>> byName = new HashMap<>(); public SortedMap<Integer, String> ranks; public LinkedHashMap<String, Map<String, Set<String>>> groups = new LinkedHashMap<>(); public Map<String, Integer> none; public Table() {} }
