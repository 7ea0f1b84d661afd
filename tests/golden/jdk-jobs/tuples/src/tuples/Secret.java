package tuples;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Secret { private final String word; private final int size; public Secret(String word, int size) { this.word = word; this.size = size; } @Override public boolean equals(Object o) { return o instanceof Secret && ((Secret) o).word.equals(word) && ((Secret) o).size == size; } @Override public int hashCode() { return word.hashCode() + size; } }
