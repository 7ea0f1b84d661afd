"""Compiled decoders and encoders over Arrow columns, with the same results as those of
``codec``.
"""
