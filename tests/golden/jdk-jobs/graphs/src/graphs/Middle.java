package graphs;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public abstract class Middle<T> extends Base { protected T middle; protected final List<T> all = new ArrayList<>(); }
