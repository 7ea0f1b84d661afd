package graphs;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Node { final String name; Node next, twin; Node[] children; Object extra; final List<String> tags = new ArrayList<>(); Integer none; public Node(String name) { this.name = name; } }
