from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from grid.daemon.planner import Planner, previous_of, reasons
from grid.model import Sample
from grid.overlay import verify
from grid.policy import PolicyInput, PolicyMemory, as_previous
from tests.daemon.parts import CONFIG, config, reading

AT = "2026-01-01T00:00:00Z"


def given_input(now: float = 10.0, ready: int = 2, text: str = CONFIG, generation: int = 1) -> PolicyInput:
    network = config(text).to_network(generation=generation)
    samples = {name: Sample(name, int(now), now - 0.1, reading(ready), 2.0) for name in network.providers}
    return PolicyInput(network, samples, PolicyMemory(), now)


def test_what_did_not_change_is_not_rendered_again() -> None:
    planner = Planner()
    first = planner.plan(given_input(), AT)
    second = planner.plan(replace(given_input(11.0), memory=first.outcome.memory), "2026-01-01T00:00:01Z")
    assert {name: id(one) for name, one in first.documents.items()} == {
        name: id(one) for name, one in second.documents.items()
    }


def test_what_changed_is_rendered_again() -> None:
    planner = Planner()
    first = planner.plan(given_input(), AT)
    second = planner.plan(replace(given_input(11.0, ready=0), memory=first.outcome.memory), AT)
    assert second.documents["edge-east"].revision != first.documents["edge-east"].revision
    other = planner.plan(given_input(generation=2), AT)
    assert other.documents["edge-east"].envelope["provenance"]["source_generation"] == 2


def test_a_gateway_that_is_gone_is_forgotten() -> None:
    planner = Planner()
    planner.plan(given_input(), AT)
    found = planner.plan(given_input(text=CONFIG.replace("  edge-west: {site: west}\n", "")), AT)
    assert set(found.documents) == {"edge-east"}
    assert set(planner._rendered) == {"edge-east"}


def test_a_document_says_of_its_predecessor_what_its_plan_said() -> None:
    found = Planner().plan(given_input(), AT)
    for name, document in found.documents.items():
        envelope = verify(document.body).envelope
        assert envelope is not None
        assert previous_of(envelope) == as_previous(found.plans[name])


def test_a_first_document_is_summed_up_and_a_change_is_named() -> None:
    planner = Planner()
    first = planner.plan(given_input(), AT)
    said = reasons(first, dict.fromkeys(first.documents))
    assert said["edge-east"].startswith("first document: 2 candidates")
    old = {name: verify(one.body).envelope for name, one in first.documents.items()}
    second = planner.plan(replace(given_input(11.0, ready=0), memory=first.outcome.memory), AT)
    said = reasons(second, old)
    assert "east-llama: behind every ready provider" in said["edge-east"]


def test_where_the_pass_decided_nothing_the_documents_are_compared() -> None:
    planner = Planner()
    first = planner.plan(given_input(), AT)
    old = {name: verify(one.body).envelope for name, one in first.documents.items()}
    text = CONFIG.replace("picker: saturation", "picker: random")
    second = planner.plan(replace(given_input(11.0, text=text), memory=first.outcome.memory), AT)
    assert second.outcome.changes == ()
    said = reasons(second, {"edge-east": old["edge-east"]})
    assert said == {"edge-east": "picker changes saturation -> random", "edge-west": "published again"}


@settings(max_examples=20)
@given(st.integers(min_value=1, max_value=400))
def test_reasons_are_short(count: int) -> None:
    found = Planner().plan(given_input(), AT)
    long = replace(found.outcome, changes=tuple(f"provider-{number}: changed" for number in range(count)))
    said = reasons(replace(found, outcome=long), {})
    assert all(len(text) <= 500 for text in said.values())
