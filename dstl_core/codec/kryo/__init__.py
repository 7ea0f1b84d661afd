"""Values of Kryo as Flink configures it: Kryo 2.24 in Flink 1.x, Kryo 5 in Flink 2.x.

Both are read without Java, Kryo 5 is written too. Layouts of JDK classes are known here; those of
the job's classes come from its jar (``dstl_core.codec.classfile``).
"""
