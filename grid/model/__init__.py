"""Frozen values that every room of the house speaks in. This package imports nothing else of Grid.

- ``names``: the closed vocabularies (admission states, tiers, pickers, ...);
- ``reasons``: every reason code with its meaning and the next step;
- ``errors``: the one error family;
- ``network``: what the configuration declares (sites, providers, gateways);
- ``signals``: what a scrape said (readings, samples);
- ``decisions``: what the policy made of it (loads, decisions, plans, signal frames).
"""

from grid.model.decisions import Candidate as Candidate
from grid.model.decisions import Decision as Decision
from grid.model.decisions import Exclusion as Exclusion
from grid.model.decisions import GatewayPlan as GatewayPlan
from grid.model.decisions import Load as Load
from grid.model.decisions import Step as Step
from grid.model.decisions import stable_id as stable_id
from grid.model.errors import AdmissionError as AdmissionError
from grid.model.errors import BusError as BusError
from grid.model.errors import ConfigError as ConfigError
from grid.model.errors import ConfigProblem as ConfigProblem
from grid.model.errors import DaemonError as DaemonError
from grid.model.errors import DeliveryError as DeliveryError
from grid.model.errors import GridError as GridError
from grid.model.errors import LeaseError as LeaseError
from grid.model.errors import OverlayError as OverlayError
from grid.model.errors import RecordingError as RecordingError
from grid.model.errors import RoutingError as RoutingError
from grid.model.errors import ScrapeError as ScrapeError
from grid.model.names import AdmissionState as AdmissionState
from grid.model.names import CapacitySource as CapacitySource
from grid.model.names import Contract as Contract
from grid.model.names import Freshness as Freshness
from grid.model.names import HeldSource as HeldSource
from grid.model.names import Kind as Kind
from grid.model.names import LoadSource as LoadSource
from grid.model.names import Order as Order
from grid.model.names import Picker as Picker
from grid.model.names import Placement as Placement
from grid.model.names import ReadySource as ReadySource
from grid.model.names import Tier as Tier
from grid.model.network import Access as Access
from grid.model.network import Capability as Capability
from grid.model.network import Drain as Drain
from grid.model.network import Gateway as Gateway
from grid.model.network import Network as Network
from grid.model.network import Pressure as Pressure
from grid.model.network import Provider as Provider
from grid.model.network import Site as Site
from grid.model.reasons import Reason as Reason
from grid.model.signals import Problem as Problem
from grid.model.signals import Reading as Reading
from grid.model.signals import Sample as Sample
