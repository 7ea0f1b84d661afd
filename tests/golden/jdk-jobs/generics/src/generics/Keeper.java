package generics;
import java.io.Serializable; import java.math.*; import java.net.*; import java.time.*; import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*; import java.util.regex.*;
public class Keeper { public Gen<Leaf> leaves; public List<List<Long>> grid = new ArrayList<>(); public List<? extends Leaf> wild; public Keeper() {} }
