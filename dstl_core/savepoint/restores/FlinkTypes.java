import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.functions.RichFunction;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/**
 * Asks Flink whether it reads state with the types of a job. Flink and the jars of the job are on the class path. The first
 * argument is a file with a question a line, the second one is the file of the answers.
 *
 * <p>Question: number, class of the function or nothing, state in Base64, its kind, class of its values or nothing, and in
 * Base64 the serializer snapshot and each value. Answer: number, word, number of values that were read, sentence, and
 * in Base64 the snapshot of the serializer that the job declares. Tabs separate them.
 */
public final class FlinkTypes {
    private static final int LONGEST = 400;

    /** The descriptors that a function asks for when it opens. */
    private record Opened(Map<String, StateDescriptor<?, ?>> descriptors, String error) {}

    private record Answer(String word, int read, String sentence, String wanted) {
        Answer(String word, int read, String sentence) {
            this(word, read, sentence, "");
        }
    }

    private static final Map<String, Opened> OPENED = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        // What the job prints is of no interest.
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        System.setOut(nowhere);
        System.setErr(nowhere);
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] question = line.split("\t", -1);
            Answer answer = answer(question);
            String sentence = answer.sentence.replaceAll("\\s+", " ");
            answers.add(String.join("\t", question[0], answer.word, Integer.toString(answer.read),
                    sentence.substring(0, Math.min(LONGEST, sentence.length())), answer.wanted));
        }
        Files.write(Path.of(arguments[1]), answers, StandardCharsets.UTF_8);
        // Threads of the job do not hold the program up.
        Runtime.getRuntime().halt(0);
    }

    private static Answer answer(String[] question) {
        TypeSerializer<?> wanted;
        try {
            StateDescriptor<?, ?> descriptor = descriptor(question[1], text(question[2]), question[4]);
            String kind = descriptor.getType().name().toLowerCase(Locale.ROOT);
            if (!question[1].isEmpty() && !kind.equals(question[3])) {
                return new Answer("kind", 0, kind);
            }
            wanted = descriptor.getSerializer();
        } catch (Throwable error) {
            return new Answer("unknown", 0, describe(error));
        }
        TypeSerializerSnapshot<?> stored;
        try {
            stored = TypeSerializerSnapshot.readVersionedSnapshot(input(question[5]), FlinkTypes.class.getClassLoader());
        } catch (Throwable error) {
            return new Answer("unreadable", 0, describe(error));
        }
        return compare(stored, wanted, question);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Answer compare(TypeSerializerSnapshot stored, TypeSerializer wanted, String[] question) {
        String word;
        TypeSerializer<?> reader;
        int read = 0;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try {
            TypeSerializerSnapshot.writeVersionedSnapshot(
                    new DataOutputViewStreamWrapper(bytes), wanted.snapshotConfiguration());
            TypeSerializerSchemaCompatibility<?> found =
                    wanted.snapshotConfiguration().resolveSchemaCompatibility(stored);
            if (found.isIncompatible()) {
                return new Answer("incompatible", 0, "", encode(bytes));
            }
            if (found.isCompatibleAfterMigration()) {
                word = "migration";
                reader = stored.restoreSerializer();
            } else {
                word = "compatible";
                reader = found.isCompatibleAsIs() ? wanted : found.getReconfiguredSerializer();
            }
            for (int at = 6; at < question.length; at++) {
                DataInputViewStreamWrapper value = input(question[at]);
                reader.deserialize(value);
                if (value.available() > 0) {
                    throw new IOException("a value has " + value.available() + " bytes more than Flink reads");
                }
                read++;
            }
        } catch (Throwable error) {
            return new Answer("fails", read, describe(error));
        }
        return new Answer(word, read, "", encode(bytes));
    }

    private static StateDescriptor<?, ?> descriptor(String function, String state, String valueClass)
            throws Throwable {
        StateDescriptor<?, ?> descriptor;
        if (!function.isEmpty()) {
            Opened opened = OPENED.get(function);
            if (opened == null) {
                opened = open(function);
                OPENED.put(function, opened);
            }
            descriptor = opened.descriptors.get(state);
            if (descriptor == null) {
                String error = opened.error.isEmpty() ? "" : ": " + opened.error;
                throw new IllegalStateException("the function does not ask for the state when it opens" + error);
            }
            if (descriptor.getTtlConfig().isEnabled()) {
                throw new IllegalStateException("the state has a time to live");
            }
        } else {
            Class<?> type = Class.forName(valueClass);
            if (type.getTypeParameters().length > 0) {
                throw new IllegalStateException(valueClass + " is generic");
            }
            descriptor = new ValueStateDescriptor<>("value", TypeExtractor.getForClass(type));
        }
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return descriptor;
    }

    /** Opens a function with a context that only writes down which state is asked for. */
    private static Opened open(String name) {
        Map<String, StateDescriptor<?, ?>> found = new HashMap<>();
        String error = "";
        try {
            RichFunction function = (RichFunction) make(Class.forName(name));
            InvocationHandler handler = (proxy, method, given) -> {
                if (given != null && given.length == 1 && given[0] instanceof StateDescriptor<?, ?> descriptor) {
                    found.put(descriptor.getName(), descriptor);
                }
                return nothing(method.getReturnType());
            };
            function.setRuntimeContext((RuntimeContext) Proxy.newProxyInstance(
                    FlinkTypes.class.getClassLoader(), new Class<?>[] {RuntimeContext.class}, handler));
            function.open((org.apache.flink.api.common.functions.OpenContext) Proxy.newProxyInstance(
                    FlinkTypes.class.getClassLoader(),
                    new Class<?>[] {org.apache.flink.api.common.functions.OpenContext.class},
                    (proxy, method, given) -> nothing(method.getReturnType())));
        } catch (Throwable thrown) {
            error = describe(thrown);
        }
        return new Opened(found, error);
    }

    private static Object make(Class<?> type) throws Exception {
        for (Constructor<?> each : type.getDeclaredConstructors()) {
            if (each.getParameterCount() == 0) {
                each.setAccessible(true);
                return each.newInstance();
            }
        }
        // Flink deserializes functions, too: no constructor of theirs runs.
        Class<?> unsafe = Class.forName("sun.misc.Unsafe");
        Field field = unsafe.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Method allocate = unsafe.getMethod("allocateInstance", Class.class);
        return allocate.invoke(field.get(null), type);
    }

    private static Object nothing(Class<?> type) {
        if (type == boolean.class) {
            return false;
        }
        if (type == int.class) {
            return 0;
        }
        return type == long.class ? (Object) 0L : null;
    }

    private static String encode(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static DataInputViewStreamWrapper input(String text) {
        return new DataInputViewStreamWrapper(new ByteArrayInputStream(Base64.getDecoder().decode(text)));
    }

    private static String describe(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        String message = cause.getMessage();
        if (cause instanceof IllegalStateException && message != null) {
            return message;
        }
        return cause.getClass().getSimpleName() + (message == null ? "" : ": " + message);
    }
}
