"""Serializers of Flink's own operators, which no declared type has."""
