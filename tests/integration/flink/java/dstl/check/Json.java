package dstl.check;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.json.JsonWriteFeature;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.json.JsonMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/** JSON in and out. */
final class Json {
    private static final ObjectMapper PLAIN = new ObjectMapper();
    /** Lone surrogates have no UTF-8 form; as ASCII escapes they live. */
    private static final ObjectMapper ASCII =
            JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();

    private Json() {}

    static JsonNode parse(String text) {
        try {
            return PLAIN.readTree(text);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("not JSON: " + text, error);
        }
    }

    static String text(JsonNode node) {
        try {
            return ASCII.writeValueAsString(node);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    static ObjectNode object() {
        return JsonNodeFactory.instance.objectNode();
    }

    static ArrayNode array() {
        return JsonNodeFactory.instance.arrayNode();
    }

    static ArrayNode pair(JsonNode key, JsonNode value) {
        return array().add(key).add(value);
    }

    /** Map entries by the JSON text of their keys, in the order of its code points. */
    static ArrayNode sortedByKey(List<ArrayNode> pairs) {
        pairs.sort((a, b) -> Arrays.compareUnsigned(utf8(a.get(0)), utf8(b.get(0))));
        return array().addAll(pairs);
    }

    private static byte[] utf8(JsonNode node) {
        return node.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** A text of an object, or the default if it is absent or null. */
    static String text(JsonNode object, String field, String otherwise) {
        return object.hasNonNull(field) ? object.get(field).asText() : otherwise;
    }
}
