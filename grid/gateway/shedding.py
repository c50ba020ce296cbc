"""When to refuse new work of a model: every site that could take it is past full, and known to be.

Judged once per frame on saturation, not on KV pressure: all known and above ``START`` begins it, one below ``END``
(or no longer known, since nobody is refused on a missing number) ends it. Between frames the estimates stand in:
while all are above the overflow bound, new work is refused too, which bounds what the last resort may pile up.
"""

from collections.abc import Iterable

from grid.gateway.draws import Bits
from grid.gateway.target import Target

START = 1.05
END = 0.95

RETRY_AFTER = (3, 7)
"""Least and most s that a client is asked to wait; spread, so that refused clients do not come back together."""


def judge(shedding: bool, healthy: Iterable[Target]) -> bool:
    """Whether to shed from this frame on, given whether it was so before. No healthy target at all is not shedding."""
    saturations = [target.saturation if target.known else None for target in healthy]
    if not saturations or any(value is None or value < END for value in saturations):
        return False
    return shedding or all(value is not None and value > START for value in saturations)


def retry_after(bits: Bits) -> int:
    """Whole seconds for a Retry-After header."""
    least, most = RETRY_AFTER
    return least + bits(32) * (most - least + 1) // (1 << 32)
