"""The configuration file: its models, loading and checking. Does no I/O but reading that file.

``load`` and ``parse`` give a :class:`Config` or raise a ConfigError that lists every problem at once, each with its
line and the nearest right thing. ``warnings`` says what works but is probably not meant.
"""

from grid.config.advice import warnings as warnings
from grid.config.fleet import AccessConfig as AccessConfig
from grid.config.fleet import EppSource as EppSource
from grid.config.fleet import PressureConfig as PressureConfig
from grid.config.fleet import PrometheusSource as PrometheusSource
from grid.config.fleet import ProviderConfig as ProviderConfig
from grid.config.fleet import Readiness as Readiness
from grid.config.fleet import SiteConfig as SiteConfig
from grid.config.fleet import Upstream as Upstream
from grid.config.gateways import AdmissionConfig as AdmissionConfig
from grid.config.gateways import AffinityConfig as AffinityConfig
from grid.config.gateways import Band as Band
from grid.config.gateways import GatewayConfig as GatewayConfig
from grid.config.gateways import RetryConfig as RetryConfig
from grid.config.loading import load as load
from grid.config.loading import parse as parse
from grid.config.process import BusConfig as BusConfig
from grid.config.process import BusTls as BusTls
from grid.config.process import DaemonConfig as DaemonConfig
from grid.config.root import Config as Config
from grid.config.scalars import Listen as Listen
from grid.config.schema import json_schema as json_schema
from grid.config.units import format_duration as format_duration
from grid.config.units import format_percent as format_percent
from grid.config.units import format_size as format_size
from grid.config.units import parse_duration as parse_duration
from grid.config.units import parse_percent as parse_percent
from grid.config.units import parse_size as parse_size
