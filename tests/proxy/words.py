"""Documents, configurations and endpoints to test delivery with."""

from pathlib import Path
from typing import Any

import yaml

from grid.bus import Position
from grid.model import AdmissionState, Picker
from grid.overlay import Document
from grid.proxy.eds import Endpoint, Place
from tests.overlay.build import candidate, document

OPEN = AdmissionState.NEW_AND_EXISTING
EXISTING = AdmissionState.EXISTING_ONLY
NONE = AdmissionState.NONE

MODEL = "llama"
SERVICE = "grid|inference_model|llama"

Row = tuple[str, int, int] | tuple[str, int, int, AdmissionState]
"""Site, group, weight, admission."""


def grouped(*rows: Row, picker: Picker = Picker.WEIGHTED_RANDOM, model: str = MODEL) -> Document:
    """A document of ``rows``; the cluster of site ``east`` is ``east-llama``."""
    made = []
    for rank, (site, group, weight, *rest) in enumerate(rows):
        admission = rest[0] if rest else OPEN
        made.append(
            candidate(
                f"{site}-llama",
                model,
                rank,
                selection_group=group,
                traffic_weight=weight,
                admission_state=admission,
            )
        )
    return document(*made, picker=picker)


def reached(**ports: int) -> dict[Place, Endpoint]:
    """Endpoints on loopback by site."""
    return {
        (site, f"{site}-llama"): Endpoint("127.0.0.1", port, addresses=("127.0.0.1",)) for site, port in ports.items()
    }


def config_text(bus: str, urls: dict[str, str | None], **gateway: Any) -> str:
    """Network ``acme``: gateway ``edge`` at ``east``, and a provider for each site of ``urls``."""
    providers = {}
    for site, url in urls.items():
        providers[f"{site}-llama"] = {
            "site": site,
            "cluster": f"{site}-llama",
            "models": [MODEL],
            "source": {"epp": "http://127.0.0.1:1/metrics"},
            **({} if url is None else {"url": url}),
        }
    return yaml.safe_dump(
        {
            "network": "acme",
            "bus": {"url": bus},
            "sites": {site: {} for site in {"east", *urls}},
            "providers": providers,
            "gateways": {"edge": {"site": "east", "picker": "weightedRandom", **gateway}},
        }
    )


def write_config(path: Path, bus: str, urls: dict[str, str | None], **gateway: Any) -> Path:
    path.write_text(config_text(bus, urls, **gateway))
    return path


def position(version: int, epoch: int = 1) -> Position:
    return Position(epoch, version)
