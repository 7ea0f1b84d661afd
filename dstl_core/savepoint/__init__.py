"""The State Processor API without Spark: look into snapshots, read them, write and edit them."""
