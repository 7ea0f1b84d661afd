package records;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public record Trip(long id, String name, List<Stop> stops, Map<String, Long> counts, LocalDate day, Optional<String> note) {}
