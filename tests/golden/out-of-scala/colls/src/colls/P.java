package colls;

public record P(int x, String y) {}
