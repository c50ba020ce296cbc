"""The files a source's credentials lie in, read again when they change. Everything here blocks: call it in a thread.

Kubernetes rotates a projected token by swapping a symlink, and so do tools that renew certificates; so a file counts as
changed when what its path leads to is another file, or has another size or time of change.
"""

import os
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from grid.model import Reason, ScrapeError

REFUSED_CREDENTIAL: Final = frozenset(
    {
        Reason.CREDENTIAL_MISSING,
        Reason.CREDENTIAL_DENIED,
        Reason.CREDENTIAL_REJECTED,
        Reason.CREDENTIAL_UNCHECKED,
    }
)
"""Answers that may be about the token that was sent."""

_MAX_TOKEN: Final = 64 * 1024

_Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What one exchange needs. ``token`` never leaves the Authorization header: its repr does not show it."""

    token: str | None
    context: ssl.SSLContext | None

    def __repr__(self) -> str:
        return f"Credentials(token={'set' if self.token else None}, context={self.context!r})"


class CredentialFiles:
    """Token and TLS files of one source.

    ``tls`` says whether a TLS context is wanted at all; ``context`` is one given from outside, which then stands for
    the files. Without ``ca_file`` the system's own trusted authorities count.
    """

    def __init__(
        self,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
        tls: bool = True,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._token_file = token_file
        self._tls_files = (ca_file, cert_file, key_file) if tls and context is None else (None, None, None)
        self._tls = tls
        self._given = context if tls else None
        self._token: str | None = None
        self._token_mark: _Mark | None = None
        self._context: ssl.SSLContext | None = None
        self._tls_marks: tuple[_Mark | None, ...] = ()

    @property
    def constant(self) -> bool:
        """Whether no file has to be looked at, so that :meth:`load` cannot block."""
        return self._token_file is None and (not self._tls or self._given is not None)

    def distrust(self) -> None:
        """Read the token anew the next time, however unchanged its file looks: it was refused.

        Some file systems give times in whole seconds, and a rotated token often has the size of the one before.
        """
        self._token_mark = None

    def load(self) -> Credentials:
        """Token and TLS context as the files have them now.

        Raises :class:`ScrapeError` ``credential_file`` or ``tls_material``, naming the file and never its content.
        """
        return Credentials(self._load_token(), self._load_context())

    def _load_token(self) -> str | None:
        if self._token_file is None:
            return None
        try:
            # Looked at before it is read: a swap in between is seen the next time.
            mark = _mark(self._token_file)
            if mark != self._token_mark:
                self._token = _read_token(self._token_file)
                self._token_mark = mark
        except OSError as error:
            raise ScrapeError(
                f"token_file {self._token_file} cannot be read: {error.strerror}", reason=Reason.CREDENTIAL_FILE
            ) from error
        return self._token

    def _load_context(self) -> ssl.SSLContext | None:
        if not self._tls or self._given is not None:
            return self._given
        ca_file, cert_file, key_file = self._tls_files
        if not any(self._tls_files):
            return system_context()
        try:
            marks = tuple(_mark(path) if path else None for path in self._tls_files)
            if marks != self._tls_marks or self._context is None:
                self._context = _build_context(ca_file, cert_file, key_file)
                self._tls_marks = marks
        except OSError as error:
            # ssl.SSLError is an OSError too.
            named = ", ".join(str(path) for path in self._tls_files if path)
            told = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise ScrapeError(
                f"the TLS files ({named}) cannot be used: {told or error}", reason=Reason.TLS_MATERIAL
            ) from error
        return self._context


@lru_cache(maxsize=1)
def system_context() -> ssl.SSLContext:
    """One context for all sources without a CA of their own: each costs about 1 MB and some ms."""
    return ssl.create_default_context()


@lru_cache(maxsize=1)
def plain_context() -> ssl.SSLContext:
    """A context for sources over plain HTTP, which hold one and never use it. It trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _mark(path: Path) -> _Mark:
    found = os.stat(path)  # noqa: PTH116 - half the cost of Path.stat, at every scrape
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _read_token(path: Path) -> str:
    with path.open("rb") as file:
        token = file.read(_MAX_TOKEN + 1).strip()
    fault = ""
    if not token:
        fault = "is empty"
    elif len(token) > _MAX_TOKEN:
        fault = f"is larger than {_MAX_TOKEN} bytes"
    elif not all(0x21 <= byte <= 0x7E for byte in token):
        fault = "holds blanks, line breaks or characters beyond ASCII inside the token"
    if fault:
        raise ScrapeError(f"token_file {path} {fault}", reason=Reason.CREDENTIAL_FILE)
    return token.decode("ascii")


def _build_context(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if cert_file is not None:
        # OpenSSL would ask on the terminal for the pass phrase of an encrypted key.
        context.load_cert_chain(cert_file, key_file, password=_no_pass_phrase)
    return context


def _no_pass_phrase() -> str:
    raise ScrapeError("the key file is encrypted", reason=Reason.TLS_MATERIAL, hint="give it without a pass phrase")
