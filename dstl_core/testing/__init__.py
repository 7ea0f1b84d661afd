"""Shipped fakes and helpers for tests."""
