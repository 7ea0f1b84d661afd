"""Values of Kryo from bytes to bytes."""
