"""The sections of the process itself: ``daemon`` and ``bus``."""

from pathlib import Path
from typing import Annotated

from grid.config import scalars
from grid.config.base import GIVEN, PASSWORD_FILE, PEM_FILE, TOKEN_FILE, Section, TlsFiles
from grid.config.scalars import Listen
from grid.config.urls import bus_url


class DaemonConfig(Section):
    """How the daemon observes, and where it can be asked."""

    listen: Annotated[Listen, scalars.listen()] = Listen("127.0.0.1", 7070)
    """``host:port`` of the debug HTTP side. Default 127.0.0.1:7070: any address that others can reach shows what the
    fleet does and takes drains, so it needs ``token_file``. Port 0 takes any free one."""

    token_file: Annotated[Path | None, TOKEN_FILE] = None
    """File with the bearer token that the debug HTTP side asks for. Omitted: no token, and only on loopback."""

    scrape_interval: Annotated[float, scalars.duration("100ms", "1h")] = 2.0
    """Time between two scrapes of one provider, 100ms to 1h. Default 2s: a change is seen within a request's life, and
    a real page costs the EPP 1 to 10 ms. ``scrape_budget`` stretches it where pages are dear."""

    scrape_timeout: Annotated[float, scalars.duration("10ms", "5m")] = 2.0
    """Deadline over a whole scrape, connecting included, 10ms to 5m. Default 2s: longer than any healthy EPP needs."""

    scrape_budget: Annotated[float, scalars.percent()] = 0.05
    """Largest share of its own time that a source may spend on our scrapes, above 0% to 100%. Default 5%: an EPP with a
    thousand tenants has a page of 40 MB, which costs it 0.4 s; it is then asked every 8 s at most."""

    freshness: Annotated[float | None, scalars.duration("100ms", "1d", auto=True)] = None
    """Age from which a sample no longer counts as fresh, or ``auto``. Default auto: interval + timeout + one more
    interval (and 7s where only means that the EPP rewrites slowly are known), stretched with the interval."""

    state_dir: Annotated[Path | None, scalars.file_path("the path of a directory", "/var/lib/grid")] = None
    """Directory for what should outlive a restart: memory of admission, last documents, the greatest epoch seen, the
    embedded server's socket. Omitted: a private directory of the user, and nothing else is kept."""


class BusTls(TlsFiles):
    """TLS towards Redis, for ``rediss://`` (and ``rediss+sentinel://``, ``rediss+cluster://``)."""


class BusConfig(Section):
    """The Redis that carries documents and signals from the daemon to the gateways."""

    url: Annotated[str, bus_url()] = "embedded"
    """Where the bus is: ``embedded`` (a private server that the daemon starts), ``redis://host:port/db``,
    ``rediss://`` (TLS), ``unix:///path``, ``redis+sentinel://h1,h2/master`` or ``redis+cluster://h1,h2`` (both with
    ``rediss`` too). Default embedded: everything works on one machine without an installation. A password never stands
    here."""

    username: Annotated[str | None, scalars.text("a user name", "grid-daemon")] = None
    """Redis ACL user. Omitted: the server's default user."""

    password_file: Annotated[Path | None, PASSWORD_FILE] = None
    """File with the password of Redis; read anew on each connection, so it can be rotated. Omitted: none."""

    tls: Annotated[BusTls | None, GIVEN] = None
    """Own authorities and client certificate towards Redis. Omitted: the authorities of the system."""

    lease: Annotated[float, scalars.duration("1s", "10m")] = 10.0
    """Life of the leader lease, 1s to 10m, renewed at a third of it. Default 10s: a dead leader is replaced within that
    time, and a Redis that is silent for 6 s costs no change of leader."""

    history: Annotated[int, scalars.integer(1, 100_000, "200")] = 200
    """Documents kept per gateway for ``grid overlay history`` and ``diff``, 1 to 100000. Default 200."""

    sign_key_file: Annotated[Path | None, PEM_FILE] = None
    """PEM file of the Ed25519 private key that documents are signed with. Omitted: not signed; who can write to Redis
    can then write documents."""
