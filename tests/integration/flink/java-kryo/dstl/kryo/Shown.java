package dstl.kryo;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.*;
import java.util.concurrent.atomic.*;
import java.util.regex.Pattern;

/**
 * What a value holds, as text: fields, elements, and which objects are one and the same.
 *
 * <p>Types of Flink keep neither the classes of containers nor what values share.
 */
final class Shown {
  private final boolean exact;
  private final IdentityHashMap<Object, Integer> seen = new IdentityHashMap<>();
  private final IdentityHashMap<Object, Integer> open = new IdentityHashMap<>();

  private Shown(boolean exact) {
    this.exact = exact;
  }

  static String of(Object value, boolean exact) throws Exception {
    return new Shown(exact).text(value);
  }

  private String text(Object value) throws Exception {
    if (value == null) return "null";
    Class<?> of = value.getClass();
    if (value instanceof Enum<?> constant) {
      return constant.getDeclaringClass().getName() + "." + constant.name();
    }
    if (value instanceof String) return "\"" + value + "\"";
    if (value instanceof Class<?> || value instanceof Comparator<?>) return of.getName();
    boolean parts =
        g.Kit.isOwn(of) || of.isArray() || value instanceof Collection || value instanceof Map;
    if (!parts) return leaf(value);
    if (open.containsKey(value)) return "@cycle" + (exact ? open.get(value) : "");
    if (exact && !isSingle(value)) {
      Integer known = seen.putIfAbsent(value, seen.size());
      if (known != null) return "@" + known;
    }
    open.put(value, seen.size());
    String found = content(value, of);
    open.remove(value);
    return found;
  }

  private static boolean isSingle(Object value) {
    return value.getClass().getName().startsWith("java.util.Collections$Empty");
  }

  private String leaf(Object value) throws Exception {
    String name = value.getClass().getSimpleName() + ":";
    if (value instanceof Optional<?> held) return name + text(held.orElse(null));
    if (value instanceof Float number) return name + Integer.toHexString(Float.floatToIntBits(number));
    if (value instanceof Double number) return name + Long.toHexString(Double.doubleToLongBits(number));
    if (value instanceof java.time.ZoneOffset offset) return name + offset.getTotalSeconds();
    if (value instanceof java.time.OffsetTime time) {
      return name + time.toLocalTime() + " " + time.getOffset().getTotalSeconds();
    }
    if (value instanceof java.time.OffsetDateTime time) {
      return name + time.toLocalDateTime() + " " + time.getOffset().getTotalSeconds();
    }
    if (value instanceof java.time.ZonedDateTime time) {
      return name + time.toLocalDateTime() + " " + time.getZone().getId();
    }
    if (value instanceof Throwable error) {
      return name + error + " by " + error.getCause() + " at " + error.getStackTrace().length;
    }
    if (value instanceof java.text.SimpleDateFormat format) return name + format.toPattern();
    if (value instanceof Pattern pattern) return name + pattern.pattern();
    return name + value;
  }

  private String content(Object value, Class<?> of) throws Exception {
    String name = of.getName();
    if (of.isArray()) {
      List<String> items = new ArrayList<>();
      for (int i = 0; i < Array.getLength(value); i++) items.add(text(Array.get(value, i)));
      return name + items;
    }
    if (g.Kit.isOwn(of)) return name + fields(value, of);
    String shown = exact ? name : "";
    if (value instanceof Map<?, ?> map) {
      TreeMap<String, Object> keys = new TreeMap<>();
      // Keys are values without parts.
      for (Map.Entry<?, ?> each : map.entrySet()) keys.put(text(each.getKey()), each.getValue());
      List<String> items = new ArrayList<>();
      for (Map.Entry<String, Object> each : keys.entrySet()) {
        items.add(each.getKey() + "=" + text(each.getValue()));
      }
      return shown + "{" + String.join(", ", items) + "}";
    }
    List<String> items = new ArrayList<>();
    for (Object each : (Collection<?>) value) items.add(text(each));
    if (value instanceof Set || value instanceof PriorityQueue) Collections.sort(items);
    return shown + items;
  }

  private String fields(Object value, Class<?> of) throws Exception {
    TreeMap<String, String> found = new TreeMap<>();
    List<Field> fields = new ArrayList<>();
    for (Class<?> owner = of; owner != Object.class; owner = owner.getSuperclass()) {
      for (Field field : owner.getDeclaredFields()) {
        int flags = field.getModifiers();
        if (!Modifier.isStatic(flags) && !Modifier.isTransient(flags) && !field.isSynthetic()) {
          fields.add(field);
        }
      }
    }
    fields.sort(Comparator.comparing(Field::getName).thenComparing(f -> f.getDeclaringClass().getName()));
    for (Field field : fields) {
      field.setAccessible(true);
      found.put(
          field.getName() + " of " + field.getDeclaringClass().getName(), text(field.get(value)));
    }
    return found.toString();
  }
}
