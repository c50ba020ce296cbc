"""What all sections of the configuration share."""

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict

from grid.config.scalars import FileScalar, file_path, wrong_type


class Section(BaseModel):
    """A section: frozen, unknown keys refused, every field followed by its meaning, unit, default and why."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


def _given(value: Any) -> Any:
    if value is None:
        wrong_type("has no content, which could mean on or off", "write {} for its defaults, or remove the line")
    return value


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


GIVEN: Final = BeforeValidator(_given)
"""For optional sections: one without content could mean on or off, so it is refused."""

OR_EMPTY: Final = BeforeValidator(_or_empty)
"""For sections that are always there: one whose every line is commented out has its defaults."""

TOKEN_FILE: Final[FileScalar] = file_path("the path of a file that holds a token", "/etc/grid/site.token")
PASSWORD_FILE: Final[FileScalar] = file_path("the path of a file that holds a password", "/etc/grid/redis.password")
PEM_FILE: Final[FileScalar] = file_path("the path of a PEM file", "/etc/grid/tls.pem")


class TlsFiles(Section):
    """TLS towards a server: whom we trust, and who we are."""

    ca_file: Annotated[Path | None, PEM_FILE] = None
    """PEM file of the authorities that may have signed the server's certificate. Omitted: those of the system."""

    cert_file: Annotated[Path | None, PEM_FILE] = None
    """PEM file of our client certificate, for servers that ask for one. Goes with ``key_file``."""

    key_file: Annotated[Path | None, PEM_FILE] = None
    """PEM file of the private key of ``cert_file``. It must not be encrypted."""
