"""From a document to Envoy's endpoints: priorities, weights, what is left out, names, versions, what is read back."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grid.bus import Position
from grid.model import AdmissionState, Kind, Picker, Reason
from grid.overlay import Document
from grid.proxy import eds
from grid.proxy.eds import Assignments, Endpoint, Place, Version, cluster_name
from tests.overlay.build import accepted, candidate, document
from tests.proxy.words import EXISTING, MODEL, NONE, OPEN, SERVICE, grouped, reached

PORTS = {"east": 1001, "west": 1002, "north": 1003, "south": 1004}
HERE = Position(12, 7)


def assign(doc: Document, endpoints: dict[Place, Endpoint] | None = None, **options: Any) -> Assignments:
    return eds.assign(accepted(doc.body), HERE, doc.revision, endpoints or reached(**PORTS), **options)


def resources(made: Assignments) -> dict[str, Any]:
    return {one["cluster_name"]: one for one in json.loads(made.data)["resources"]}


def levels(made: Assignments, name: str = SERVICE) -> list[list[tuple[str, int]]]:
    """Site and weight by priority; a star marks DRAINING."""
    found = []
    for number, locality in enumerate(resources(made)[name]["endpoints"]):
        assert locality["priority"] == number
        found.append(
            [
                (
                    one["metadata"]["filter_metadata"]["grid"]["site"] + ("*" if "health_status" in one else ""),
                    one["load_balancing_weight"],
                )
                for one in locality["lb_endpoints"]
            ]
        )
    return found


class TestPriorities:
    def test_groups_are_priorities_and_weights_are_weights(self) -> None:
        made = assign(grouped(("east", 0, 300), ("west", 0, 100), ("north", 1, 50)))
        assert levels(made) == [[("east", 300), ("west", 100)], [("north", 50)]]

    def test_what_admits_no_one_is_left_out_and_the_rest_moves_up(self) -> None:
        made = assign(grouped(("east", 0, 1, NONE), ("west", 1, 2), ("north", 2, 3, NONE), ("south", 3, 4)))
        assert levels(made) == [[("west", 2)], [("south", 4)]]
        assert made.problems == ()

    def test_what_keeps_its_sessions_only_is_draining(self) -> None:
        made = assign(grouped(("east", 0, 1), ("west", 1, 2, EXISTING)))
        assert levels(made) == [[("east", 1)], [("west*", 2)]]
        (entry,) = resources(made)[SERVICE]["endpoints"][1]["lb_endpoints"]
        assert entry["health_status"] == "DRAINING"

    def test_nobody_at_all_is_an_empty_assignment(self) -> None:
        made = assign(grouped(("east", 0, 1, NONE)))
        assert resources(made)[SERVICE]["endpoints"] == []
        assert (made.endpoints, made.wanted) == (0, 0)

    @pytest.mark.parametrize("picker", [None, Picker.DETERMINISTIC])
    def test_the_plain_form_is_tried_in_its_order(self, picker: Picker | None) -> None:
        made = assign(
            document(
                candidate("east-llama"),
                candidate("west-llama", rank=1, admission_state=NONE),
                candidate("north-llama", rank=2),
                candidate("south-llama", rank=3, admission_state=EXISTING),
                picker=picker,
            )
        )
        assert levels(made) == [[("east", 1)], [("north", 1)], [("south*", 1)]]

    def test_a_longer_order_than_envoy_has_priorities_ends_in_one(self) -> None:
        places = {f"s{number}": number + 1 for number in range(200)}
        made = assign(
            document(*(candidate(f"{site}-llama", rank=rank) for rank, site in enumerate(places))), reached(**places)
        )
        found = levels(made)
        assert len(found) == eds.MAX_PRIORITY + 1 == 129
        assert [len(level) for level in found[:128]] == [1] * 128
        assert found[128] == [(f"s{number}", 1) for number in range(128, 200)]

    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from([OPEN, EXISTING, NONE]), st.integers(1, 1000)),
            min_size=1,
            max_size=12,
        )
    )
    def test_any_document_gives_contiguous_priorities_of_exact_shares(self, steps: list[Any]) -> None:
        """Groups and admissions at random; what is admitted is there once, in its group, with its share."""
        rows, group = [], 0
        states: dict[int, AdmissionState] = {}
        for number, (step, admission, weight) in enumerate(steps):
            group += bool(step and number)
            states.setdefault(group, admission)
            rows.append((f"s{number}", group, weight, states[group]))
        made = assign(grouped(*rows), reached(**{row[0]: 2000 + number for number, row in enumerate(rows)}))
        expected = [
            [(row[0] + ("*" if row[3] is EXISTING else ""), row[2]) for row in rows if row[1] == wanted]
            for wanted in range(group + 1)
            if states[wanted] is not NONE
        ]
        assert levels(made) == expected


class TestWeights:
    @pytest.mark.parametrize("picker", [Picker.ROUND_ROBIN, Picker.RANDOM])
    def test_pickers_without_weights_weigh_all_alike(self, picker: Picker) -> None:
        assert levels(assign(grouped(("east", 0, 300), ("west", 0, 100), picker=picker))) == [
            [("east", 1), ("west", 1)]
        ]

    @pytest.mark.parametrize("picker", [Picker.WEIGHTED_RANDOM, Picker.SATURATION])
    def test_the_others_have_the_documents(self, picker: Picker) -> None:
        made = assign(grouped(("east", 0, 300), ("west", 0, 100), picker=picker))
        assert levels(made) == [[("east", 300), ("west", 100)]]

    def test_without_a_weight_it_is_the_usual_one(self) -> None:
        weighed = candidate("west-llama", rank=1, selection_group=0, traffic_weight=50)
        made = assign(document(candidate("east-llama", selection_group=0), weighed, picker=Picker.SATURATION))
        assert levels(made) == [[("east", 100), ("west", 50)]]

    def test_the_share_of_a_provider_is_split_among_its_addresses(self) -> None:
        endpoints = reached(**PORTS)
        endpoints["east", "east-llama"] = Endpoint("east.test", 80, addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"))
        endpoints["west", "west-llama"] = Endpoint("west.test", 80, addresses=("10.1.0.1", "10.1.0.2"))
        made = assign(grouped(("east", 0, 100), ("west", 0, 100), ("north", 0, 50)), endpoints)
        (level,) = levels(made)
        total = {site: sum(weight for name, weight in level if name == site) for site in ("east", "west", "north")}
        assert total == {"east": 600, "west": 600, "north": 300}
        assert len(level) == made.endpoints == 6

    @given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 16)), min_size=1, max_size=8))
    def test_split_shares_stay_within_half_a_percent(self, members: list[tuple[int, int]]) -> None:
        rows, endpoints = [], {}
        for number, (weight, count) in enumerate(members):
            rows.append((f"s{number}", 0, weight))
            endpoints[f"s{number}", f"s{number}-llama"] = Endpoint(
                "x.test", 80, addresses=tuple(f"10.0.{number}.{part}" for part in range(count))
            )
        (level,) = levels(assign(grouped(*rows), endpoints))
        total = sum(weight for _, weight in level)
        assert all(weight >= 1 for _, weight in level)
        assert total < 2**32
        for site, _, weight in rows:
            got = Fraction(sum(found for name, found in level if name == site), total)
            wanted = Fraction(weight, sum(one[0] for one in members))
            assert abs(got - wanted) <= Fraction(1, 200)


class TestEndpoints:
    def test_an_endpoint_says_whose_it_is(self) -> None:
        doc = grouped(("east", 0, 5))
        endpoints = {("east", "east-llama"): Endpoint("api.east.test", 8443, tls=True, addresses=("2001:db8::1",))}
        made = assign(doc, endpoints)
        (entry,) = resources(made)[SERVICE]["endpoints"][0]["lb_endpoints"]
        assert entry == {
            "endpoint": {
                "address": {"socket_address": {"address": "2001:db8::1", "port_value": 8443}},
                "hostname": "api.east.test",
            },
            "load_balancing_weight": 5,
            "metadata": {
                "filter_metadata": {
                    "grid": {
                        "site": "east",
                        "cluster": "east-llama",
                        "stable_id": accepted(doc.body).candidates[0].stable_id,
                    },
                    "envoy.transport_socket_match": {"scheme": "https"},
                }
            },
        }
        assert made.places == {SERVICE: {("2001:db8::1", 8443): ("east", "east-llama")}}

    def test_a_provider_without_an_address_is_named_once_and_the_others_stay(self) -> None:
        endpoints = reached(west=1002)
        endpoints["north", "north-llama"] = Endpoint("", 0, problem="provider north-llama has no url")
        made = assign(grouped(("east", 0, 1), ("west", 1, 2), ("north", 2, 3)), endpoints)
        assert levels(made) == [[("west", 2)]]
        assert [(one.code, one.detail) for one in made.problems] == [
            (Reason.ADDRESS_UNKNOWN, "east/east-llama: the configuration has no such provider"),
            (Reason.ADDRESS_UNKNOWN, "north/north-llama: provider north-llama has no url"),
        ]
        assert made.unknown == {("east", "east-llama")}
        assert (made.endpoints, made.wanted) == (1, 3)

    def test_what_admits_no_one_needs_no_address(self) -> None:
        made = assign(grouped(("east", 0, 1), ("west", 1, 2, NONE)), reached(east=1001))
        assert made.problems == ()

    def test_one_address_in_a_group_is_one_endpoint_with_both_shares(self) -> None:
        made = assign(grouped(("east", 0, 10), ("west", 0, 20)), reached(east=1001, west=1001))
        assert levels(made) == [[("east", 30)]]
        (problem,) = made.problems
        assert problem.code is Reason.ADDRESS_SHARED
        assert problem.detail == "west/west-llama: 127.0.0.1:1001 is east/east-llama too"

    def test_one_address_in_two_groups_stays_in_the_first(self) -> None:
        made = assign(
            grouped(("east", 0, 10), ("west", 1, 20), ("north", 2, 30)), reached(east=1001, west=1001, north=1003)
        )
        assert levels(made) == [[("east", 10)], [("north", 30)]]
        assert [one.code for one in made.problems] == [Reason.ADDRESS_SHARED]

    def test_copies_of_a_candidate_are_turns_of_their_own(self) -> None:
        twice = accepted(grouped(("east", 0, 10), ("west", 0, 10), picker=Picker.ROUND_ROBIN).body)
        copied = (*twice.candidates, twice.candidates[0])
        envelope = type(twice)(**{name: getattr(twice, name) for name in twice.__slots__} | {"candidates": copied})
        made = eds.assign(envelope, HERE, twice.revision or "", reached(**PORTS))
        assert levels(made) == [[("east", 2), ("west", 1)]]


class TestCapabilities:
    def test_each_has_an_assignment(self) -> None:
        made = assign(
            document(
                candidate("east-llama", "b"),
                candidate("east-llama", "a", 1),
                candidate("west-llama", "a", 2, kind=Kind.MCP_TOOL),
            )
        )
        assert [*resources(made)] == ["grid|inference_model|a", "grid|inference_model|b", "grid|mcp_tool|a"]
        assert made.names == tuple(resources(made))

    def test_one_that_is_gone_is_emptied_not_left_out(self) -> None:
        """Envoy would keep its old endpoints."""
        made = assign(grouped(("east", 0, 1)), known=["grid|inference_model|gone", SERVICE])
        assert resources(made)["grid|inference_model|gone"]["endpoints"] == []
        assert levels(made) == [[("east", 1)]]
        assert made.names == ("grid|inference_model|gone", SERVICE)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("llama-3.1-70b", "grid|inference_model|llama-3.1-70b"),
            ("meta-llama/Llama-3.1-70B", "grid|inference_model|meta-llama/Llama-3.1-70B"),
            ("llama3:70b", "grid|inference_model|llama3%3A70b"),
            ("a|b c%", "grid|inference_model|a%7Cb%20c%25"),
            ("größe", "grid|inference_model|gr%C3%B6%C3%9Fe"),
        ],
    )
    def test_readable_and_safe(self, name: str, expected: str) -> None:
        assert cluster_name(Kind.INFERENCE_MODEL, name) == expected

    def test_a_prefix_of_ones_own(self) -> None:
        assert cluster_name(Kind.MCP_TOOL, "search", "acme") == "acme|mcp_tool|search"
        assert assign(grouped(("east", 0, 1)), prefix="acme").names == (f"acme|inference_model|{MODEL}",)

    @given(st.text(min_size=1), st.text(min_size=1))
    @example("a%7Cb", "a|b")
    @example("a", "A")
    def test_two_names_never_meet(self, one: str, other: str) -> None:
        names = [cluster_name(Kind.INFERENCE_MODEL, name) for name in (one, other)]
        assert (names[0] == names[1]) == (one == other)
        assert all(name.isascii() and name.isprintable() and " " not in name and ":" not in name for name in names)


class TestVersions:
    def test_it_says_everything_and_reads_back(self) -> None:
        made = assign(grouped(("east", 0, 1)))
        text = json.loads(made.data)["version_info"]
        assert text == f"acme/edge/12.7/{made.version.revision}/{made.version.digest}"
        assert Version.parse(text) == made.version == Version("acme", "edge", HERE, made.version.revision, text[-12:])

    @pytest.mark.parametrize(
        "text", ["", "v2", "acme/edge/12.7/abc/0011", "a/b/1.2/" + "0" * 64, "a/b/x.2/" + "0" * 64]
    )
    def test_others_are_not_ours(self, text: str) -> None:
        assert Version.parse(text) is None

    def test_another_address_of_one_document_is_another_version(self) -> None:
        doc = grouped(("east", 0, 1))
        one, other = assign(doc, reached(east=1001)).version, assign(doc, reached(east=1002)).version
        assert (one.position, one.revision) == (other.position, other.revision)
        assert one != other

    def test_the_same_gives_the_same_bytes(self) -> None:
        doc = grouped(("east", 0, 1), ("west", 0, 2))
        assert assign(doc).data == assign(doc).data


class TestReadingBack:
    def test_version_names_and_addresses(self) -> None:
        endpoints = reached(**PORTS)
        endpoints["east", "east-llama"] = Endpoint("api.test", 80, addresses=("10.0.0.1", "10.0.0.2"))
        made = assign(grouped(("east", 0, 1), ("west", 1, 2)), endpoints, known=["grid|inference_model|gone"])
        found = eds.read(made.data, "acme", "edge")
        assert found is not None
        assert (found.held.position, found.held.revision) == (HERE, made.version.revision)
        assert found.names == made.names
        assert found.addresses == {"api.test": ("10.0.0.1", "10.0.0.2")}

    def test_not_that_of_another_gateway_or_network(self) -> None:
        made = assign(grouped(("east", 0, 1)))
        assert eds.read(made.data, "acme", "other") is None
        assert eds.read(made.data, "other", "edge") is None

    def test_not_one_that_was_changed_by_hand(self) -> None:
        made = assign(grouped(("east", 0, 1)))
        assert eds.read(made.data.replace(b"1001", b"1002"), "acme", "edge") is None

    @pytest.mark.parametrize(
        "data", [b"", b"{", b"[]", b"{}", b'{"version_info": 3, "resources": []}', b'{"version_info": "v1"}', b"\xff"]
    )
    def test_not_what_is_no_such_file(self, data: bytes) -> None:
        assert eds.read(data, "acme", "edge") is None

    def test_not_one_cut_short(self) -> None:
        data = assign(grouped(("east", 0, 1))).data
        assert all(eds.read(data[:length], "acme", "edge") is None for length in range(0, len(data) - 1, 7))
