package dstl.kryo;

import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.GenericArrayType;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.lang.reflect.WildcardType;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
import java.time.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/** Makes values of classes by their fields. The same seed makes the same value in each JVM. */
final class Fill {
  private static final int DEEPEST = 4;
  private static final Class<?>[] ANYTHING = {
    String.class, Integer.class, Long.class, Short.class, Double.class, BigInteger.class,
    g.Kit.Color.class, g.Kit.Shape.class, g.Kit.Leaf.class, g.Kit.Open.class, ArrayList.class,
    Integer[].class, int[].class, g.Kit.Color[].class
  };

  private final Random random;
  private final Map<String, List<Object>> made = new HashMap<>();

  Fill(long seed) {
    random = new Random(seed);
  }

  /** An object of a class whose fields have random values. */
  Object object(Class<?> of, Map<TypeVariable<?>, Type> known, int depth) throws Exception {
    Constructor<?> constructor = of.getDeclaredConstructor();
    constructor.setAccessible(true);
    Object found = constructor.newInstance();
    keep(of, found);
    Map<TypeVariable<?>, Type> variables = new HashMap<>(known);
    for (Class<?> owner = of; owner != Object.class; owner = owner.getSuperclass()) {
      for (Field field : owner.getDeclaredFields()) {
        int flags = field.getModifiers();
        if (Modifier.isStatic(flags) || Modifier.isTransient(flags) || field.isSynthetic()) continue;
        field.setAccessible(true);
        Object value = value(field.getGenericType(), variables, depth + 1);
        if (value != null || !field.getType().isPrimitive()) field.set(found, value);
      }
      if (owner.getGenericSuperclass() instanceof ParameterizedType above) bind(above, variables);
    }
    return found;
  }

  private static void bind(ParameterizedType type, Map<TypeVariable<?>, Type> variables) {
    TypeVariable<?>[] names = ((Class<?>) type.getRawType()).getTypeParameters();
    for (int i = 0; i < names.length; i++) {
      Type argument = type.getActualTypeArguments()[i];
      variables.put(names[i], variables.getOrDefault(argument, argument));
    }
  }

  private Object value(Type type, Map<TypeVariable<?>, Type> variables, int depth)
      throws Exception {
    if (type instanceof Class<?> plain && plain.isPrimitive()) return scalar(plain);
    int chance = random.nextInt(12);
    if (chance < 2) return null;
    return present(type, variables, depth, chance < 5);
  }

  private Object present(
      Type type, Map<TypeVariable<?>, Type> variables, int depth, boolean shared)
      throws Exception {
    if (type instanceof TypeVariable<?> variable) {
      Type bound = variables.get(variable);
      return present(bound == null ? Object.class : bound, Map.of(), depth, shared);
    }
    if (type instanceof WildcardType wildcard) {
      return present(wildcard.getUpperBounds()[0], variables, depth, shared);
    }
    // The same variable stands for several types.
    boolean isOpen = type instanceof GenericArrayType || type.toString().contains("T");
    List<Object> earlier = made.get(type.toString());
    if (shared && earlier != null && !isOpen) return earlier.get(random.nextInt(earlier.size()));
    Object found = fresh(type, variables, depth);
    if (!(type instanceof Class<?> of && g.Kit.isOwn(of))) keep(type, found);
    return found;
  }

  private void keep(Type type, Object found) {
    if (found == null || found instanceof Number || found instanceof Boolean) return;
    // Kryo 5 reads a second reference to such a list as another one.
    if (found.getClass().getName().equals("java.util.Arrays$ArrayList")) return;
    made.computeIfAbsent(type.toString(), name -> new ArrayList<>()).add(found);
  }

  private Object fresh(Type type, Map<TypeVariable<?>, Type> variables, int depth)
      throws Exception {
    if (type instanceof GenericArrayType array) {
      Type element = array.getGenericComponentType();
      Type bound = variables.getOrDefault(element, element);
      return array(raw(bound, variables), bound, variables, depth);
    }
    Class<?> of = raw(type, variables);
    if (of.isArray()) return array(of.getComponentType(), of.getComponentType(), variables, depth);
    Type[] arguments =
        type instanceof ParameterizedType given ? given.getActualTypeArguments() : new Type[0];
    if (of == EnumSet.class) return enumSet(raw(arguments[0], variables));
    if (Collection.class.isAssignableFrom(of)) return collection(of, arguments, variables, depth);
    if (Map.class.isAssignableFrom(of)) return map(of, arguments, variables, depth);
    if (of == Optional.class) {
      return Optional.ofNullable(value(arguments[0], variables, depth + 1));
    }
    if (g.Kit.isOwn(of) && !of.isEnum()) {
      if (depth > DEEPEST) return null;
      Class<?> chosen = g.Kit.choose(of, random);
      Map<TypeVariable<?>, Type> own = new HashMap<>();
      if (type instanceof ParameterizedType given) {
        TypeVariable<?>[] names = of.getTypeParameters();
        for (int i = 0; i < names.length; i++) {
          Type argument = arguments[i];
          own.put(names[i], variables.getOrDefault(argument, argument));
        }
      }
      return object(chosen, own, depth);
    }
    return scalar(of);
  }

  private static Class<?> raw(Type type, Map<TypeVariable<?>, Type> variables) {
    if (type instanceof Class<?> plain) return plain;
    if (type instanceof ParameterizedType given) return (Class<?>) given.getRawType();
    if (type instanceof GenericArrayType array) {
      return raw(array.getGenericComponentType(), variables).arrayType();
    }
    if (type instanceof WildcardType wildcard) return raw(wildcard.getUpperBounds()[0], variables);
    // The component of an array of a type variable is erased.
    return raw(((TypeVariable<?>) type).getBounds()[0], Map.of());
  }

  private Object array(
      Class<?> component, Type element, Map<TypeVariable<?>, Type> variables, int depth)
      throws Exception {
    int size = random.nextInt(4);
    Object found = Array.newInstance(component, size);
    for (int i = 0; i < size; i++) {
      Object item = value(element, variables, depth + 1);
      if (item != null) Array.set(found, i, item);
    }
    return found;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private Object enumSet(Class<?> of) {
    EnumSet found = EnumSet.noneOf((Class) of);
    for (Object constant : of.getEnumConstants()) if (random.nextBoolean()) found.add(constant);
    return found;
  }

  private static final Map<Class<?>, List<Supplier<Collection<Object>>>> COLLECTIONS = Map.of(
      List.class, List.of(ArrayList::new, LinkedList::new),
      Collection.class, List.of(ArrayList::new, LinkedHashSet::new, ArrayDeque::new),
      Set.class, List.of(HashSet::new, LinkedHashSet::new),
      Queue.class, List.of(LinkedList::new, ArrayDeque::new),
      Deque.class, List.of(LinkedList::new, ArrayDeque::new),
      SortedSet.class, List.of(TreeSet::new));

  private static final Map<Class<?>, List<Supplier<Map<Object, Object>>>> MAPS = Map.of(
      Map.class, List.of(HashMap::new, LinkedHashMap::new),
      SortedMap.class, List.of(TreeMap::new),
      ConcurrentMap.class, List.of(ConcurrentHashMap::new));

  @SuppressWarnings("unchecked")
  private Object collection(
      Class<?> of, Type[] arguments, Map<TypeVariable<?>, Type> variables, int depth)
      throws Exception {
    Type element = arguments.length == 1 ? arguments[0] : Object.class;
    List<Supplier<Collection<Object>>> kinds = COLLECTIONS.get(of);
    Collection<Object> found = kinds == null
        ? (Collection<Object>) of.getDeclaredConstructor().newInstance()
        : kinds.get(random.nextInt(kinds.size())).get();
    if (of == List.class && random.nextInt(8) == 0) {
      return Collections.singletonList(value(element, variables, depth + 1));
    }
    int size = depth > DEEPEST ? 0 : random.nextInt(4);
    Object[] items = new Object[size];
    for (int i = 0; i < size; i++) {
      items[i] = value(element, variables, depth + 1);
    }
    if (of == List.class && random.nextInt(8) == 0) return Arrays.asList(items);
    for (Object item : items) if (item != null || takesNull(found)) found.add(item);
    return found;
  }

  private static boolean takesNull(Object container) {
    return container instanceof ArrayList || container instanceof LinkedList
        || container instanceof HashSet || container instanceof HashMap
        || container instanceof Vector || container instanceof CopyOnWriteArrayList;
  }

  @SuppressWarnings("unchecked")
  private Object map(
      Class<?> of, Type[] arguments, Map<TypeVariable<?>, Type> variables, int depth)
      throws Exception {
    Type key = arguments.length == 2 ? arguments[0] : String.class;
    Type item = arguments.length == 2 ? arguments[1] : Object.class;
    List<Supplier<Map<Object, Object>>> kinds = MAPS.get(of);
    Map<Object, Object> found = kinds == null
        ? (Map<Object, Object>) of.getDeclaredConstructor().newInstance()
        : kinds.get(random.nextInt(kinds.size())).get();
    int size = depth > DEEPEST ? 0 : random.nextInt(4);
    for (int i = 0; i < size; i++) {
      Object name = value(key, variables, depth + 1);
      Object content = value(item, variables, depth + 1);
      boolean nulls = takesNull(found) || found instanceof TreeMap;
      if ((name != null || takesNull(found)) && (content != null || nulls)) found.put(name, content);
    }
    return found;
  }

  private static final Locale[] LOCALES = {
    Locale.GERMANY, Locale.ENGLISH, Locale.ROOT, Locale.US, new Locale("no", "NO", "NY"),
  };

  private long number() {
    switch (random.nextInt(5)) {
      case 0: return random.nextInt(3) - 1;
      case 1: return random.nextInt(300) - 150;
      case 2: return random.nextInt();
      case 3: return random.nextBoolean() ? Long.MIN_VALUE : Long.MAX_VALUE;
      default: return random.nextLong();
    }
  }

  private String text() {
    String[] parts = {"a", "bc", "\u00e9", "\u4e2d", "\ud83d\ude00", "\0", "Z", "0123456789"};
    StringBuilder found = new StringBuilder();
    int size = random.nextInt(6);
    for (int i = 0; i < size; i++) found.append(parts[random.nextInt(parts.length)]);
    if (random.nextInt(6) == 0) found.append("x".repeat(25 + random.nextInt(60)));
    return found.toString();
  }

  private double real() {
    double[] ends = {0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, 1.5, Double.MIN_VALUE};
    int at = random.nextInt(ends.length + 2);
    return at < ends.length ? ends[at] : random.nextGaussian() * 1e9;
  }

  private Object scalar(Class<?> of) throws Exception {
    if (of.isEnum()) return of.getEnumConstants()[random.nextInt(of.getEnumConstants().length)];
    if (of == Object.class || of == java.io.Serializable.class) {
      return present(ANYTHING[random.nextInt(ANYTHING.length)], Map.of(), DEEPEST, false);
    }
    long n = number();
    LocalDate date = LocalDate.of(1900 + random.nextInt(200), 1 + random.nextInt(12), 1 + random.nextInt(28));
    LocalTime time = random.nextBoolean()
        ? LocalTime.of(random.nextInt(24), random.nextInt(60))
        : LocalTime.ofNanoOfDay(random.nextInt(86400) * 1_000_000_000L + random.nextInt(1_000_000_000));
    ZoneOffset offset = ZoneOffset.ofTotalSeconds(random.nextInt(100) * 900 - 45000 + random.nextInt(2));
    switch (of.getSimpleName()) {
      case "boolean": case "Boolean": return random.nextBoolean();
      case "byte": case "Byte": return (byte) n;
      case "char": case "Character": return (char) (32 + random.nextInt(60000) % 0xD000);
      case "short": case "Short": return (short) n;
      case "int": case "Integer": case "Number": case "Comparable": return (int) n;
      case "long": case "Long": return n;
      case "float": case "Float": return (float) real();
      case "double": case "Double": return real();
      case "String": case "CharSequence": return text();
      case "StringBuilder": return new StringBuilder(text());
      case "StringBuffer": return new StringBuffer(text());
      case "BigInteger": return BigInteger.valueOf(n).pow(1 + random.nextInt(3));
      case "BigDecimal": return new BigDecimal(BigInteger.valueOf(n), random.nextInt(40) - 10);
      case "Date": return new Date(n / 1000);
      case "Timestamp": {
        java.sql.Timestamp found = new java.sql.Timestamp(Math.floorMod(n, 4_000_000_000_000L));
        found.setNanos(random.nextInt(1_000_000_000));
        return found;
      }
      case "UUID": return new UUID(n, random.nextLong());
      case "BitSet": {
        BitSet found = new BitSet();
        for (int i = random.nextInt(4); i > 0; i--) found.set(random.nextInt(200));
        return found;
      }
      case "URI": return URI.create("http://h" + random.nextInt(9) + "/x");
      case "Pattern": return Pattern.compile("[a-z]{" + (1 + random.nextInt(9)) + "}");
      case "Class": return random.nextBoolean() ? int.class : g.Kit.Leaf.class;
      case "Currency": return Currency.getInstance("EUR");
      case "Locale": return LOCALES[random.nextInt(LOCALES.length)];
      case "SimpleDateFormat":
        return new java.text.SimpleDateFormat(random.nextBoolean() ? "yyyy-MM" : "HH:mm", Locale.ROOT);
      case "IllegalStateException":
        return new IllegalStateException(text(), new java.io.IOException(text()));
      case "Throwable": case "Exception": return new UnsupportedOperationException(text());
      case "AtomicInteger": return new AtomicInteger((int) n);
      case "AtomicLong": return new AtomicLong(n);
      case "AtomicBoolean": return new AtomicBoolean(random.nextBoolean());
      case "OptionalInt": return random.nextBoolean() ? OptionalInt.of((int) n) : OptionalInt.empty();
      case "OptionalLong": return random.nextBoolean() ? OptionalLong.of(n) : OptionalLong.empty();
      case "OptionalDouble":
        return random.nextBoolean() ? OptionalDouble.of(real()) : OptionalDouble.empty();
      case "LocalDate": return date;
      case "LocalTime": return time;
      case "LocalDateTime": return LocalDateTime.of(date, time);
      case "Instant": return Instant.ofEpochSecond(n / 1_000_000_000, random.nextInt(1_000_000_000));
      case "Duration": return Duration.ofSeconds(n / 4, random.nextInt(1_000_000_000));
      case "Period": return Period.of(random.nextInt(9) - 4, random.nextInt(30) - 9, random.nextInt(90) - 9);
      case "Year": return Year.of(random.nextInt(3000));
      case "YearMonth": return YearMonth.from(date);
      case "MonthDay": return MonthDay.from(date);
      case "ZoneOffset": return offset;
      case "OffsetDateTime": return OffsetDateTime.of(date, time, offset);
      case "OffsetTime": return OffsetTime.of(time, offset);
      case "ZonedDateTime": return ZonedDateTime.of(date, time, ZoneId.of("Europe/Berlin"));
      default: throw new IllegalArgumentException("no values of " + of);
    }
  }
}
