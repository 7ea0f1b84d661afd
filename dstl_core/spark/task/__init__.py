"""The code that runs in a Spark task: one subtask of one operator."""
