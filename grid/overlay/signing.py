"""Ed25519 signatures over what orders and identifies a publication. Needs the ``signing`` extra; imported late.

The signed message is the canonical JSON of ``{epoch, revision, scope, version}``. The revision is the hash of the
content, so the content is covered; ``excluded`` and the rest of ``publication`` are for people and are not.
"""

import base64
import binascii
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from grid.model import ConfigError, Reason
from grid.overlay.canonical import canonical_bytes
from grid.overlay.envelope import Scope

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Sign = Callable[[bytes], str]
"""Takes a message, gives its signature in base64."""

_RAW_KEY = 32
_HOW = "make one with: openssl genpkey -algorithm ed25519"


def message(scope: Scope, revision: str, epoch: int, version: int) -> bytes:
    """The bytes that are signed."""
    return canonical_bytes({"epoch": epoch, "revision": revision, "scope": scope.to_json(), "version": version})


def signer(private_key: bytes) -> Sign:
    """What signs with this private key (PEM, PKCS #8, not encrypted). Raises ConfigError where it is none."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        key = load_pem_private_key(private_key, password=None)
    except (ValueError, TypeError) as error:
        raise _no_key(f"the signing key is no unencrypted PEM private key ({error}); {_HOW}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(f"the signing key is not Ed25519 but {type(key).__name__}; {_HOW}")
    return lambda text: base64.b64encode(key.sign(text)).decode()


def public_key(key: bytes) -> bytes:
    """The 32 bytes of an Ed25519 public key, from those bytes themselves or from PEM. Raises ConfigError otherwise."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    if len(key) == _RAW_KEY:
        return bytes(key)
    try:
        loaded = load_pem_public_key(key)
    except ValueError as error:
        raise _no_key(
            f"the key to check signatures with is no PEM public key ({error}); "
            "get it from the signing key with: openssl pkey -in KEY -pubout"
        ) from error
    if not isinstance(loaded, Ed25519PublicKey):
        raise _no_key(f"the key to check signatures with is not Ed25519 but {type(loaded).__name__}; {_HOW}")
    return loaded.public_bytes_raw()


def is_signed(text: bytes, signature: str, key: bytes) -> bool:
    """Whether ``signature`` (base64) is that of ``text`` by the owner of the public ``key`` (32 bytes)."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        _loaded(key).verify(base64.b64decode(signature, validate=True), text)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


@functools.lru_cache(maxsize=8)
def _loaded(key: bytes) -> "Ed25519PublicKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    return Ed25519PublicKey.from_public_bytes(key)


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError(
            "signatures need the extra 'signing', which is not installed: pip install 'llm-grid[signing]'",
            reason=Reason.EXTRA_MISSING,
        ) from error


def _no_key(text: str) -> ConfigError:
    return ConfigError(text, reason=Reason.CONFIG_WRONG_TYPE)
