"""Resources: where state lies, which Spark runs, which Flink cluster is asked."""
