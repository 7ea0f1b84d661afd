"""What the schema of a YAML says of an attribute."""

from typing import Any

import dagster as dg


def shown(description: str, *examples: Any, **options: Any) -> dg.Resolver:
    """The description and the examples of an attribute, for the schema of the YAML."""
    resolver: dg.Resolver = dg.Resolver.default(
        description=description, examples=list(examples), **options
    )
    return resolver
