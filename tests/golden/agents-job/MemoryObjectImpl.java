package org.apache.flink.agents.runtime.memory;

import java.io.Serializable;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

/** The class that Flink Agents keeps in its states, with the same name and fields. */
public class MemoryObjectImpl {
    private enum ItemType { OBJECT, VALUE }

    public static final class MemoryItem implements Serializable {
        private final ItemType type;
        private final Object value;
        private final Set<String> subKeys;

        MemoryItem(Object value) {
            this.type = ItemType.VALUE;
            this.value = value;
            this.subKeys = Collections.emptySet();
        }

        MemoryItem(String... names) {
            this.type = ItemType.OBJECT;
            this.value = null;
            this.subKeys = new HashSet<>(java.util.List.of(names));
        }
    }
}
