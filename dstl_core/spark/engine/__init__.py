"""The transport of rows between Spark and Python: schemas, Arrow batches, workers."""
