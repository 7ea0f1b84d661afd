package generics;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Gen<T> { public T value; public List<T> all = new ArrayList<>(); public Map<String, T> byName = new HashMap<>(); public Gen() {} }
