package keys;

import org.apache.flink.types.Either;

public class Visit {
    public Place place;
    public Id id;
    public Either<Integer, String> kind;
    public int n;

    public Visit() {}
}
