package views;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class View { public List<String> ofs; public Map<String, Long> mapOf; public Set<Integer> setOf; public List<String> fixed; public Map<String, Long> fixedMap; public Set<Integer> fixedSet; public List<String> locked; public Collection<String> all; public View() {} }
