"""Spark's side of the transport: schemas, Arrow batches, workers."""
