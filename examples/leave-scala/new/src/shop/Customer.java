package shop;

public class Customer {
    public String name;
    public Level tier;
    public Integer since;

    public Customer() {}

    public Customer(String name, Level tier, Integer since) {
        this.name = name;
        this.tier = tier;
        this.since = since;
    }
}
