package records;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Stop { public String place; public long at; public Stop() {} public Stop(String place, long at) { this.place = place; this.at = at; } @Override public boolean equals(Object o) { return o instanceof Stop && ((Stop) o).at == at; } @Override public int hashCode() { return (int) at; } }
