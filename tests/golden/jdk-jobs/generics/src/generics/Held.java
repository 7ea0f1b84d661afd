package generics;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Held<T> { private final T one; private final List<T> many; public Held(T one, List<T> many) { this.one = one; this.many = new ArrayList<>(many); } }
