"""An import contract for outside packages. It looks at every module of the tree."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyImporters(Contract):
    """Outside packages that some of our modules may import, and no others.

    Options:
        outside: The packages.
        importers: Modules that may import them, with all that lies below.
    """

    outside = fields.ListField(subfield=fields.StringField())
    importers = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        wrong_imports = [
            (importer, package)
            for package in self.outside
            for importer in sorted(graph.find_modules_that_directly_import(package))
            if not self._may(importer)
        ]
        return ContractCheck(kept=not wrong_imports, metadata={"found": wrong_imports})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, package in check.metadata["found"]:
            output.print_error(f"{importer} imports {package}", bold=False)

    def _may(self, importer: str) -> bool:
        return any(importer == each or importer.startswith(f"{each}.") for each in self.importers)
