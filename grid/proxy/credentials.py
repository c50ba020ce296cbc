"""The gateway's credential towards one provider, from files that may change at any time."""

import ssl
from pathlib import Path
from typing import Final

import structlog

from grid.config.fleet import Upstream as UpstreamConfig

log = structlog.get_logger(__name__)

_MAX_TOKEN: Final = 16 * 1024

_Stamp = tuple[int, int, int]


class Credential:
    """``token`` and ``tls`` as last read; ``problem`` says why nothing was ever read.

    ``refresh`` blocks, so it is called from a worker thread. What cannot be read keeps what was read before.
    """

    def __init__(self, provider: str, config: UpstreamConfig | None, *, tls: bool) -> None:
        self.token: str | None = None
        self.tls: ssl.SSLContext | None = None
        self._provider = provider
        self._token_file = config.token_file if config else None
        self._ca = config.ca_file if config and tls else None
        self._cert = config.cert_file if config and tls else None
        self._key = config.key_file if config and tls else None
        self.files: tuple[Path, ...] = tuple(
            file for file in (self._token_file, self._ca, self._cert, self._key) if file is not None
        )
        self.problem: str | None = "its credential has not been read" if self.files else None
        self._seen: tuple[_Stamp, ...] = ()
        self._told: str | None = None

    @property
    def has_token(self) -> bool:
        """Whether there is a token to send."""
        return self._token_file is not None

    def refresh(self) -> None:
        """Read the files where they have changed."""
        try:
            seen = tuple(_stamp(file) for file in self.files)
            if seen == self._seen:
                return
            token = None if self._token_file is None else _read_token(self._token_file)
            tls = self._read_tls()
        except (OSError, ValueError) as error:
            detail = str(error)
            if detail != self._told:
                kept = "nothing was read yet" if self.problem is not None else "what was read before stays in use"
                log.warning("credential cannot be read", provider=self._provider, error=detail, now=kept)
                self._told = detail
            return
        if self._seen:
            log.info("credential renewed", provider=self._provider)
        self.token, self.tls, self._seen, self._told, self.problem = token, tls, seen, None, None

    def _read_tls(self) -> ssl.SSLContext | None:
        if self._ca is None and self._cert is None:
            return None
        context = ssl.create_default_context(cafile=self._ca)
        if self._cert is not None:
            context.load_cert_chain(self._cert, self._key)
        return context


def _stamp(file: Path) -> _Stamp:
    found = file.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read_token(file: Path) -> str:
    with file.open("rb") as opened:
        data = opened.read(_MAX_TOKEN + 1)
    token = data.strip()
    if not token or len(data) > _MAX_TOKEN or any(not 0x21 <= byte <= 0x7E for byte in token):
        raise ValueError(f"{file} holds no token of visible ASCII characters")
    return token.decode("ascii")
