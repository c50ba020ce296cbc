"""The page of the operator says what is so."""

import re

import pytest

from grid.flow import AdmissionPolicy
from grid.flow.core import _STATUS
from grid.sim.virtual import admission
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "flow.md").read_text(encoding="utf-8")


def test_the_first_program_runs() -> None:
    first = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(first, "flow.md", "exec"), {})  # noqa: S102 - it is ours


def test_every_refusal_is_listed_with_its_status() -> None:
    for reason, status in _STATUS.items():
        assert f"{status} `{reason}`" in PAGE


def test_defaults_are_those_of_the_policy() -> None:
    policy = AdmissionPolicy()
    assert f"the {policy.idle_tenants} seen last" in PAGE
    assert f"{policy.lease:g} s at most" in PAGE
    assert f"the last {policy.settle:g} s" in PAGE


@pytest.mark.timeout(600)
def test_the_figures_are_those_of_the_simulation() -> None:
    rows = admission.ceilings()
    ratios = [row["ratio_on"] for row in rows]
    assert ratios == sorted(ratios), "what is queued in a pool is in front of the next interactive request"
    for row in rows:
        shown = f"| {row['interactive_ceiling']:g} | {row['batch_ceiling']:g} | {row['ratio_on']:.2f} |"
        assert shown in PAGE
    first = rows[0]
    assert f"| admission **on** | {first['on_p99_ms'] / 1000:.1f} s | {first['ratio_on']:.2f} |" in PAGE
    assert f"| admission **off** | {first['off_p99_ms'] / 1000:.0f} s | {first['ratio_off']:.0f} |" in PAGE
    assert f"| idle: nobody else | {first['idle_p99_ms'] / 1000:.1f} s | 1 |" in PAGE
