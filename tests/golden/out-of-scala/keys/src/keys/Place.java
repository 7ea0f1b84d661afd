package keys;

public record Place(String region, int shelf) {}
