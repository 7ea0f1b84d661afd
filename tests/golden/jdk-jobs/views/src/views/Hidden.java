package views;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Hidden { private final List<String> ofs; private final Map<String, Long> mapOf; private final Set<Integer> setOf; public Hidden(List<String> ofs, Map<String, Long> mapOf, Set<Integer> setOf) { this.ofs = ofs; this.mapOf = mapOf; this.setOf = setOf; } }
