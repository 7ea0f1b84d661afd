"""Serializers of libraries beside Flink, and of types that Flink takes from one."""
