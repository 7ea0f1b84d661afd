"""Folders of YAML: one a component."""
