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
    """But for what a change of the way of choosing may move: it is the whole chain that plays."""
    rows = admission.ceilings()
    ratios = [row["ratio_on"] for row in rows]
    assert ratios == sorted(ratios), "what is queued in a pool is in front of the next interactive request"
    shown = re.findall(r"\n\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|(?=\n)", PAGE)
    for row, (interactive, batch, ratio) in zip(rows, shown, strict=True):
        assert (row["interactive_ceiling"], row["batch_ceiling"]) == (float(interactive), float(batch))
        assert row["ratio_on"] == pytest.approx(float(ratio), abs=0.06)
    for case, within in (("idle", 0.05), ("on", 0.05), ("off", 0.1)):
        found = re.search(rf"\n\| (?:admission )?\**{case}\**[^|]*\| ([\d.]+) s \| ([\d.]+) \|", PAGE)
        assert found is not None
        seconds, ratio = (float(one) for one in found.groups())
        assert rows[0][f"{case}_p99_ms"] / 1000 == pytest.approx(seconds, rel=within)
        assert rows[0].get(f"ratio_{case}", 1.0) == pytest.approx(ratio, rel=within)
