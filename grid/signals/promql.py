"""What a Prometheus is asked for the signals of one pool, and how its answer becomes a page again. Pure.

One instant query brings everything from one evaluation, so that values and their times belong together:

- the gauges as they are;
- what is summed over models, tenants and flows, summed by the server: its answer stays small with a thousand tenants;
- the EPP's start time, for targets that have pool series only (every process exports that name);
- ``timestamp(...)`` of the series that stand for their page, since an instant query answers with the time of its own
  evaluation. The difference of the two, both the server's, is the age.

``or`` keeps what differs in more than the metric's name, so each part but the first carries its name in a label.

The series of one EPP are then written as the page they came from, and the scan reads that: the same names, the same
rules, whether an EPP answers or a Prometheus. Whose series are whose is told by the labels that Prometheus added: what
a pool gauge carries beside the pool's name is its *target*, and everything that carries all of that is its page's.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from grid.model import Reason, ScrapeError
from grid.signals.dialects import DIALECTS, STARTED, WANTED, Fold

PART: Final = "grid_part"
"""Label that says which metric a computed part of the answer is."""

TIME: Final = "grid_time_of"
"""Label of the parts that are times."""

HISTORY: Final = 300.0
"""Seconds over which the interval between a Prometheus's own scrapes is looked up."""

_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ENDPOINT_LABELS: Final = ("model_server_pod", "model_server_endpoint")
_PER_ENDPOINT: Final = tuple(dialect.per_endpoint for dialect in DIALECTS)
_GAUGES: Final = frozenset(name for dialect in DIALECTS for name in (*dialect.gauges, dialect.per_endpoint))
_TIMED: Final = tuple(name for dialect in DIALECTS for name in (dialect.ready, dialect.per_endpoint))
_SUMMED_OVER: Final = (
    "fairness_id", "model_name", "target_model_name", "priority", "source_type",
)  # fmt: skip
_RENAMED: Final = "exported_"
"""Prefix of a label of the page whose name a label of the target has taken."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its name (that of the part where it was computed), its other labels, its value."""

    name: str
    labels: Labels
    value: str
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A vector. ``evaluated_at``: s on the server's clock."""

    series: tuple[Series, ...]
    evaluated_at: float


# --- the questions --------------------------------------------------------------------------------------------------


def selector(match: Labels, names: Sequence[str] = ()) -> str:
    """Return the matchers of a vector selector. Raises ValueError for a name that is no label name."""
    for label in match:
        if not _LABEL_NAME.fullmatch(label) or label == "__name__":
            raise ValueError(f"match: {label!r} is not a label that series can be matched by")
    matchers = [f"{label}={quoted(value)}" for label, value in sorted(match.items())]
    if names:
        matchers.insert(0, f"__name__=~{quoted('|'.join(names))}")
    return "{" + ",".join(matchers) + "}"


def quoted(text: str) -> str:
    """Return a PromQL string. Its escapes are Go's, of which JSON's are a part."""
    return json.dumps(text, ensure_ascii=False)


def signals_query(match: Labels) -> str:
    """Return the one query for all signals of the EPPs that ``match``."""
    where = selector(match)
    plain = [name for name, wanted in WANTED.items() if wanted.fold is not Fold.SUM and name != STARTED]
    summed = [name for name, wanted in WANTED.items() if wanted.fold is Fold.SUM]
    named = f'label_replace({selector(match, summed)},"{PART}","$1","__name__","(.+)")'
    started = f"{STARTED}{where} and on(job,instance) {selector(match, _TIMED)}"
    parts = [
        selector(match, plain),
        f"sum without({','.join(_SUMMED_OVER)})({named})",
        f'label_replace({started},"{PART}","{STARTED}","","")',
    ]
    for name in _TIMED:
        # Not of all names in one: timestamp() drops the name, and series alike but for it would collide.
        time = f"max without({','.join(_ENDPOINT_LABELS)})(timestamp({name}{where}))"
        parts.append(f'label_replace({time},"{TIME}","{name}","","")')
    return " or ".join(parts)


def history_query(name: str, match: Labels) -> str:
    """Return the query for the raw samples of one metric over the last :data:`HISTORY` s."""
    return f"{name}{selector(match)}[{HISTORY:.0f}s]"


# --- the answers ----------------------------------------------------------------------------------------------------


_Time = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class _VectorItem:
    metric: dict[str, str]
    value: tuple[_Time, str]


@dataclass(frozen=True, slots=True)
class _MatrixItem:
    metric: dict[str, str]
    values: list[tuple[_Time, str]]


_TIME: Final = TypeAdapter(_Time)
_VECTOR: Final = TypeAdapter(list[_VectorItem])
_MATRIX: Final = TypeAdapter(list[_MatrixItem])


def parse_vector(result: object) -> Answer:
    """Read the ``result`` of :func:`signals_query`. Raises ValueError where it is no vector."""
    series, evaluated_at = [], 0.0
    for item in _VECTOR.validate_python(result):
        evaluated_at, text = item.value
        labels = dict(item.metric)
        name = labels.pop("__name__", "")
        part, timed = labels.pop(PART, ""), labels.pop(TIME, "")
        name = part or timed or name
        if name in WANTED:
            series.append(Series(name, labels, text, is_time=bool(timed)))
    return Answer(tuple(series), evaluated_at)


def parse_interval(result: object, target: Labels) -> float:
    """Read the ``result`` of :func:`history_query`: the s between the samples of a target, 0 where unknown.

    Raises ValueError where it is no matrix.
    """
    gaps: list[float] = []
    for item in _MATRIX.validate_python(result):
        if target.items() <= item.metric.items():
            gaps.extend(after - before for (before, _), (after, _) in pairwise(item.values))
    return median(gaps) if gaps else 0.0


# --- whose series ---------------------------------------------------------------------------------------------------


def choose_target(answer: Answer, pool: str | None) -> Labels:
    """Return the labels that Prometheus gave to the one EPP meant: the only one, or the only one that has ``pool``.

    Raises ScrapeError: ``prometheus_empty``, ``prometheus_several``, ``pool_missing``; ``metric_missing`` where there
    is something of an EPP but nothing of a pool.
    """
    if not answer.series:
        raise ScrapeError("no series of an EPP", reason=Reason.PROMETHEUS_EMPTY)
    found = [_split(series) for series in answer.series if series.name in _GAUGES and not series.is_time]
    if not found:
        raise ScrapeError("only series that name no pool", reason=Reason.METRIC_MISSING)
    targets = {frozenset(labels.items()) for labels, name in found if pool is None or name == pool}
    if not targets:
        names = sorted({name for _, name in found})
        shown = ", ".join(map(quoted, names[:8])) + (" and more" if len(names) > 8 else "")
        raise ScrapeError(f"no pool {quoted(pool or '')}; there is {shown}", reason=Reason.POOL_MISSING)
    if len(targets) > 1:
        raise ScrapeError(f"{len(targets)} targets answer: {_differences(targets)}", reason=Reason.PROMETHEUS_SEVERAL)
    return dict(targets.pop())


def _split(series: Series) -> tuple[Labels, str]:
    """Part the labels of a pool gauge into what Prometheus has added and the pool's name."""
    own = {_RENAMED + label if _RENAMED + label in series.labels else label for label in ("name", *_ENDPOINT_LABELS)}
    added = {label: value for label, value in series.labels.items() if label not in own}
    return added, series.labels.get(_RENAMED + "name", series.labels.get("name", ""))


def _differences(targets: Iterable[frozenset[tuple[str, str]]]) -> str:
    """Name what tells targets apart, in the words of ``match``."""
    shared = frozenset.intersection(*targets)
    apart = sorted(",".join(f"{label}={quoted(value)}" for label, value in sorted(one - shared)) for one in targets)
    return " | ".join(apart[:4]) + (" | ..." if len(apart) > 4 else "")


def page_of(answer: Answer, target: Labels) -> bytes:
    """Write the series of one target as the page they were on, in the text format."""
    lines = []
    for series in answer.series:
        if series.is_time or not _belongs(series, target):
            continue
        labels = (*WANTED[series.name].labels, *(_ENDPOINT_LABELS if series.name in _PER_ENDPOINT else ()))
        on_page = ((label, _RENAMED + label if label in target else label) for label in labels)
        block = ",".join(f'{label}="{_escaped(series.labels[key])}"' for label, key in on_page if key in series.labels)
        lines.append(f"{series.name}{{{block}}} {series.value}\n")
    return "".join(lines).encode()


def _belongs(series: Series, target: Labels) -> bool:
    """Whether a series carries all that Prometheus gave to the target (as far as it has not been summed away)."""
    gone = _SUMMED_OVER if WANTED[series.name].fold is Fold.SUM else ()
    return all(series.labels.get(label) == value for label, value in target.items() if label not in gone)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def sampled_at(answer: Answer, target: Labels, dialect: str | None) -> float | None:
    """Return when the page was scraped, in s on the server's clock: the oldest time of the family's series.

    None where no time came, as from a server that does not know ``timestamp``. Raises ValueError where it is no time.
    """
    names = {name for family in DIALECTS if family.name == dialect for name in (family.ready, family.per_endpoint)}
    times = [
        _TIME.validate_strings(series.value)
        for series in answer.series
        if series.is_time and series.name in names and _belongs(series, target)
    ]
    return min(times, default=None)
