"""Removes secrets of URLs from text."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=//)[^/@\s]*:[^/@\s]*@")
_QUERY = re.compile(
    r"(?i)([?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|[a-z_-]*(?:sig|signature|token|secret|password|key))=)"
    r"[^&\s'\"<>]+"
)


def redacted(text: str) -> str:
    """The text without passwords and signatures of the URLs in it."""
    return _QUERY.sub(r"\1***", _USER.sub("***@", text))
