package tuples;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Leaf { public long id; public String name; public Leaf() {} public Leaf(long id, String name) { this.id = id; this.name = name; } }
