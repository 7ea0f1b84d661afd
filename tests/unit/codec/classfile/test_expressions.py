"""Calls in bytecode with their arguments, and what a job's code shows of its operators."""

from __future__ import annotations

import pytest

from dstl_core.codec.classfile.class_file import methods_with_code
from dstl_core.codec.classfile.expressions import Expression, calls
from dstl_core.codec.classfile.job_code import read_job_code
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.savepoint.read.job_classes import open_job_classes
from tests.golden_files import CHANGED_CLASSES, UPGRADE_JOBS


def classes(name: str) -> JobClasses:
    return open_job_classes([UPGRADE_JOBS / name / "job.jar"])


def test_a_descriptor_has_its_name_and_its_types() -> None:
    descriptors = [
        call
        for _, raw in classes("orders").class_files()
        for code in methods_with_code(raw)
        for call in calls(code)
        if call.kind == "new" and call.owner.endswith(".MapStateDescriptor")
    ]
    assert [each.arguments for each in descriptors] == [
        (
            Expression("text", "byItem"),
            Expression("class", "java.lang.String"),
            Expression("class", "orders.Item"),
        )
    ]


def test_uids_have_the_functions_of_their_operators() -> None:
    assert read_job_code(classes("orders")).uids == {
        "source": None,
        "feed": "orders.Orders$Feed",
        "orders": "orders.Orders$Update",
    }


@pytest.mark.parametrize(
    ("name", "setting"), [("registered", "serialization-config"), ("orders", None)]
)
def test_settings_that_change_types_are_found(name: str, setting: str | None) -> None:
    assert read_job_code(classes(name)).other_types == setting


def test_a_time_to_live_belongs_to_the_descriptor_of_its_class() -> None:
    code = read_job_code(open_job_classes([CHANGED_CLASSES / "new.jar"]))
    with_ttl = {
        name
        for by_name in code.descriptors.values()
        for name, made in by_name.items()
        if made[0].has_ttl
    }
    assert with_ttl == {"ttladded-state", "ttlkept-state"}
