package shop;

import java.util.List;
import java.util.Map;

public class Order {
    public long id;
    public Customer customer;
    public List<Line> lines;
    public String note;
    public boolean paid;
    public Map<String, Integer> tags;
    public byte[] raw;
    /** New in this job. */
    public String channel;

    public Order() {}
}
