"""Decide: pure functions of (network, samples, memory, now). No I/O, no clock, no randomness.

- ``decide``: one pass over all providers and gateways;
- ``load``: held, capacity, saturation and load, and what pages teach over time;
- ``freshness``: how old a sample may be;
- ``admission``: readiness, pressure, the way back, drain, disable, the guard of the first round;
- ``order``: each gateway's order, groups, who is left out;
- ``weights``: static and live traffic weights;
- ``memory``: what passes from one pass to the next, and through a restart or a change of leader;
- ``replay``: recorded scrapes through the same passes.

Each module says its rules, with their formulas, at its top.
"""

from grid.policy.decide import PolicyInput as PolicyInput
from grid.policy.decide import PolicyOutcome as PolicyOutcome
from grid.policy.decide import decide as decide
from grid.policy.load import assess as assess
from grid.policy.memory import PolicyMemory as PolicyMemory
from grid.policy.memory import ProviderMemory as ProviderMemory
from grid.policy.order import PreviousCandidate as PreviousCandidate
from grid.policy.replay import Event as Event
from grid.policy.replay import Pass as Pass
from grid.policy.replay import as_previous as as_previous
from grid.policy.replay import replay as replay
