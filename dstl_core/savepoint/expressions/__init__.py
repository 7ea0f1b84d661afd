"""The language of migrations and conditions: expressions over the columns of a state."""
