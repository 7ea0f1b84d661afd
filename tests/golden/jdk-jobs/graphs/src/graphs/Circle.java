package graphs;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Circle implements Shape { private final double radius; public Circle(double r) { radius = r; } }
