"""When to refuse new work of a model: every site that could take it is past full, and known to be.

Judged per frame on saturation, not on KV pressure: all healthy ones known and above ``START`` begins it, one below
``END`` (or no longer known, since nobody is refused on a missing number) ends it. A saturation of a capacity that is no
firm limit counts as unknown: it is about 1 wherever traffic grows. Between frames the estimates stand
in: while all are known and above the overflow bound, new work is refused too, which bounds what the last resort may
pile up.
"""

from collections.abc import Iterable
from typing import Final

from grid.gateway.draws import Bits
from grid.gateway.target import Target

START: Final = 1.05
END: Final = 0.95

RETRY_AFTER: Final = (3, 7)
"""Least and most s that a client is asked to wait; spread, so that refused clients do not come back together."""


def judge(shedding: bool, targets: Iterable[Target]) -> bool:
    """Whether to shed from this frame on, given whether it was so before.

    Those set back for their health have no say; where all are, there is nobody to protect and nothing is shed.
    """
    saturations = [target.saturation if target.firm else None for target in targets if not target.set_back]
    known = [value for value in saturations if value is not None]
    if not known or len(known) < len(saturations) or min(known) < END:
        return False
    return shedding or min(known) > START


def retry_after(bits: Bits) -> int:
    """Whole seconds for a Retry-After header."""
    least, most = RETRY_AFTER
    return least + bits(32) * (most - least + 1) // (1 << 32)
