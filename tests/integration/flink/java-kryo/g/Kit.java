package g;

import java.util.*;

/** Classes that the random ones hold. */
public class Kit {
  public enum Color { RED, GREEN, BLUE }

  public enum Shape {
    ROUND { int sides() { return 0; } },
    SQUARE { int sides() { return 4; } };

    abstract int sides();
  }

  public interface Named {}

  public static final class Leaf implements Named {
    private int number;
    private String text;

    Leaf() {}
  }

  public static class Open implements Named {
    private long a;
    protected String name;

    Open() {}
  }

  public static class Under extends Open {
    private double a;
    private List<String> names;

    Under() {}
  }

  public static class Gen<T> {
    T one;
    List<T> many;
    Map<String, T> named;
    T[] array;

    Gen() {}
  }

  public static class Arrays<T> {
    List<T[]> many;
    Map<String, T[][]> tables;

    Arrays() {}
  }

  public static class Bound extends Gen<Leaf> {
    private int extra;

    Bound() {}
  }

  public static class Two<A, B> {
    private final A first;
    private final Map<A, B> both;

    Two() {
      first = null;
      both = null;
    }
  }

  public static final class Node {
    Node next;
    Object data;
    List<Node> nodes;

    Node() {}
  }

  /** Whether the class is of the job. */
  public static boolean isOwn(Class<?> of) {
    return of.getName().startsWith("g.");
  }

  /** A class whose objects stand where this type is declared. */
  public static Class<?> choose(Class<?> of, Random random) {
    if (of == Named.class) return random.nextBoolean() ? Leaf.class : Under.class;
    if (of == Open.class && random.nextInt(3) == 0) return Under.class;
    return of;
  }
}
