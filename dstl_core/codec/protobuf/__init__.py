"""Messages of Protocol Buffers in state, read by a descriptor set; no generated class is needed."""
