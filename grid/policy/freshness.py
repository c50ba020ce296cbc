"""How old a sample may be.

An age is counted from the moment of receipt on our monotonic clock; no other clock takes part, and scrapes count, not
changed values: a page that says the same for an hour is as fresh as its last scrape.
"""

from typing import Final

from grid.model import Freshness, Provider, Reason, Sample, Step
from grid.policy.words import number

MEANS_AGE: Final = 7.0
"""s by which the EPP's means lag behind the page: it rewrites them every 5 s, from readings up to 2 s old."""


def bound(provider: Provider, sample: Sample | None) -> float:
    """The age in s up to which a sample is fresh.

    interval + timeout + interval: the next scrape may be as late as its timeout, and one may fail. The interval is the
    one in force when the sample was taken (stretched by the scrape budget). Where the page has only means, their own
    age comes on top. A configured bound takes the place of all that, but a stretched interval never makes it shorter
    than interval + timeout, or the provider would be stale between two good scrapes.
    """
    interval = provider.interval if sample is None else sample.interval
    if provider.freshness is not None:
        return max(provider.freshness, interval + provider.timeout)
    lag = MEANS_AGE if sample is not None and sample.reading.means_only else 0.0
    return interval + provider.timeout + interval + lag


def is_fresh(provider: Provider, sample: Sample, now: float) -> bool:
    """Whether the sample is within the bound."""
    return now - sample.received_at <= bound(provider, sample)


def judge(provider: Provider, sample: Sample | None, now: float) -> tuple[Freshness, float | None, float, Step]:
    """Freshness, age in s (None: never read) and bound in s of a provider's newest sample, with the reason."""
    limit = bound(provider, sample)
    if sample is None:
        return Freshness.ABSENT, None, limit, Step("freshness", Reason.NEVER_READ, "no scrape has succeeded yet")
    age = max(now - sample.received_at, 0.0)
    found, reason, said = Freshness.FRESH, Reason.FRESH, "within its bound of"
    if not age <= limit:
        found, reason, said = Freshness.STALE, Reason.STALE, "older than its bound of"
    detail = f"sample {sample.sequence} is {said} {_sum(provider, sample, limit)}"
    return found, age, limit, Step("freshness", reason, detail)


def _sum(provider: Provider, sample: Sample, limit: float) -> str:
    said = f"{number(limit)} s"
    if provider.freshness is not None:
        return f"{said} as configured"
    parts = f"{number(sample.interval)} interval + {number(provider.timeout)} timeout + {number(sample.interval)}"
    return f"{said} = {parts}" + (f" + {number(MEANS_AGE)} age of means" if sample.reading.means_only else "")
