"""What runs inside a Spark task: one subtask of one operator."""
