package colls;

import java.util.List;
import java.util.Map;
import java.util.Set;

public class Bag {
    public List<P> a;
    public Set<Long> b;
    public Map<String, List<Integer>> c;
    public int[] d;
    public P[] e;
    public List<Double> f;
    public List<Integer> g;

    public Bag() {}
}
