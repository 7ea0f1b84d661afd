package generics;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Both<A, B> { public A first; public B second; public List<A> firsts = new ArrayList<>(); public Map<A, B> pairs = new HashMap<>(); public Both() {} }
