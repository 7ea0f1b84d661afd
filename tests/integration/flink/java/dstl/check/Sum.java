package dstl.check;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.java.tuple.Tuple;

/** Adds numbers, and tuples field by field. As an aggregate function its accumulator is the sum itself. */
final class Sum implements ReduceFunction<Object>, AggregateFunction<Object, Object, Object> {
    private static final long serialVersionUID = 1;

    @Override
    public Object reduce(Object left, Object right) {
        if (left instanceof Tuple) {
            Tuple sum = ((Tuple) left).copy();
            for (int index = 0; index < sum.getArity(); index++) {
                sum.setField(reduce(sum.getField(index), ((Tuple) right).getField(index)), index);
            }
            return sum;
        }
        if (left instanceof Long) {
            return (Long) left + (Long) right;
        }
        if (left instanceof Integer) {
            return (Integer) left + (Integer) right;
        }
        if (left instanceof Double) {
            return (Double) left + (Double) right;
        }
        throw new IllegalArgumentException("cannot add up " + left.getClass());
    }

    @Override
    public Object createAccumulator() {
        return null;
    }

    @Override
    public Object add(Object value, Object accumulator) {
        return accumulator == null ? value : reduce(accumulator, value);
    }

    @Override
    public Object getResult(Object accumulator) {
        return accumulator;
    }

    @Override
    public Object merge(Object left, Object right) {
        return reduce(left, right);
    }
}
