package moments;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Plan { public List<LocalDate> days = new ArrayList<>(); public LocalTime until; public Optional<Duration> every; public Map<String, ZoneId> zones = new HashMap<>(); public Plan() {} }
