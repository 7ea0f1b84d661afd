"""Imported by the server of forks: two epochs, so that no fork has to load their kernels."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.unit.local import killed_epoch

with TemporaryDirectory() as _folder:
    for _number in range(2):
        killed_epoch.run(Path(_folder), _number)
