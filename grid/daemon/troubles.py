"""When what is wrong with a provider's page is worth a line: as a code comes, and once all of it is gone for good.

A page is read every few seconds, and some problems come and go with it (failed polls, a stale endpoint). So a code is
told when it comes, and counts as gone only after it was absent for :data:`HOLD` s.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from grid.model import Problem, Reason

HOLD: Final = 30.0
"""S of absence after which a problem counts as gone."""


@dataclass(frozen=True, slots=True)
class News:
    """A sentence for people, with the fields of its log line; those of a warning have a ``reason``."""

    sentence: str
    fields: Mapping[str, object]


class Troubles:
    """What was told of each provider. Times are monotonic s."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Reason, float]] = {}

    def keep(self, providers: Iterable[str]) -> None:
        """Forget all others."""
        kept = set(providers)
        self._seen = {name: codes for name, codes in self._seen.items() if name in kept}

    def note(self, provider: str, problems: Iterable[Problem], now: float) -> News | None:
        """What the newest page changed in the set of problems; None where nothing did."""
        first: dict[Reason, Problem] = {}
        for problem in problems:
            first.setdefault(problem.code, problem)
        seen = self._seen.get(provider, {})
        fresh = [problem for code, problem in first.items() if code not in seen]
        gone = [code for code, at in seen.items() if code not in first and now - at >= HOLD]
        held = {code: at for code, at in seen.items() if code not in gone} | dict.fromkeys(first, now)
        self._seen[provider] = held
        if not fresh and not gone:
            return None
        parts = [f"{one.code}: {one.detail or one.code.meaning}" for one in fresh]
        parts += [f"no longer {', '.join(gone)}"] * bool(gone)
        parts += ["nothing is wrong with it any more"] * (not held)
        fields: dict[str, object] = {"problems": sorted(code.value for code in held)}
        grave = next((one.code for one in fresh if one.code.hint), None)
        if grave is not None:
            fields |= {"reason": grave.value, "hint": grave.hint}
        return News(f"the page of {provider}: {'; '.join(parts)}", fields)
