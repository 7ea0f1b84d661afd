"""``java.util.Locale`` as a value.

Source: the fields that Java serializes, and ``Locale.toString`` of Java 17.
"""

from __future__ import annotations

from typing import NamedTuple


class Locale(NamedTuple):
    """A ``java.util.Locale``; ``extensions`` as in a language tag."""

    language: str
    country: str
    variant: str
    script: str = ""
    extensions: str = ""

    @property
    def text(self) -> str:
        """As ``Locale.toString`` shows it."""
        language, country, variant, script, extensions = self
        text = f"{language}_{country}" if country or variant else language
        if (script or extensions) and not country and not variant and language:
            text += "_"
        text += f"_{variant}" if variant else ""
        text += f"_#{script}" if script else ""
        mark = "_" if script else "_#"
        return f"{text}{mark}{extensions}" if extensions else text


NO_LOCALE_FORM = "a Locale with a script or extensions has no form in Kryo 5"
