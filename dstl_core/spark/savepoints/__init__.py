"""The State Processor API on Spark: data source, reader, bootstrap, writer."""
