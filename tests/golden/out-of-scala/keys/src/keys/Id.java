package keys;

public record Id(long value, short part, boolean live) {}
