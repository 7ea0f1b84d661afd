"""The code that runs in a task: a subtask restores its state, applies rows and persists."""
