package shop;

public enum Level {
    PLATINUM,
    FREE,
    GOLD
}
