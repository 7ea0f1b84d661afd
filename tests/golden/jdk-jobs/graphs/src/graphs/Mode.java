package graphs;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public enum Mode { FAST { @Override public int cost() { return 1; } }, SLOW { @Override public int cost() { return 9; } }; public abstract int cost(); }
