package dstl.check;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.NullNode;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

import java.util.Locale;

/** What a state is divided by besides its key. */
enum Namespace {
    VOID(VoidNamespaceSerializer.INSTANCE) {
        @Override
        JsonNode toJson(Object namespace) {
            return NullNode.instance;
        }

        @Override
        Object fromJson(JsonNode node) {
            return VoidNamespace.INSTANCE;
        }
    },
    TIMEWINDOW(new TimeWindow.Serializer()) {
        @Override
        JsonNode toJson(Object namespace) {
            TimeWindow window = (TimeWindow) namespace;
            return Json.array().add(window.getStart()).add(window.getEnd());
        }

        @Override
        Object fromJson(JsonNode node) {
            return new TimeWindow(node.get(0).longValue(), node.get(1).longValue());
        }
    };

    final TypeSerializer<Object> serializer;

    @SuppressWarnings("unchecked")
    Namespace(TypeSerializer<?> serializer) {
        this.serializer = (TypeSerializer<Object>) serializer;
    }

    abstract JsonNode toJson(Object namespace);

    abstract Object fromJson(JsonNode node);

    static Namespace of(JsonNode spec) {
        return valueOf(Json.text(spec, "ns", "void").toUpperCase(Locale.ROOT));
    }
}
