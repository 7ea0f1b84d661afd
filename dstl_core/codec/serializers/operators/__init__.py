"""Serializers of Flink's own operators; users cannot declare these types."""
