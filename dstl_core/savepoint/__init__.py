"""The State Processor API without Spark: inspects, reads, writes and edits snapshots."""
