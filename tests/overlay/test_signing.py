import builtins
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from grid.model import ConfigError, Reason
from grid.overlay import Scope, signing, verify
from tests.overlay import build

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = KEY.public_key().public_bytes_raw()


def private_pem(key: Any, encryption: Any = None) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return pem


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def signed(key: Ed25519PrivateKey = KEY, **changes: Any) -> bytes:
    sign = signing.signer(private_pem(key))
    raw = orjson.loads(build.document().published(3, 2, leader="d", published_at=build.NOW, sign=sign))
    return orjson.dumps({**raw, **changes})


def reason(data: bytes, key: bytes | None = PUBLIC) -> Reason | None:
    return verify(data, key=key).reason


def test_what_is_signed() -> None:
    text = signing.message(Scope("n", "g", "ns", "s"), "0" * 64, 2, 3)
    assert text == (
        b'{"epoch":2,"revision":"' + b"0" * 64 + b'",'
        b'"scope":{"gateway":"g","local_site":"s","namespace":"ns","network":"n"},"version":3}'
    )


def test_a_signed_document_is_accepted_with_its_key_in_either_form() -> None:
    assert reason(signed()) is None
    assert reason(signed(), public_pem(KEY)) is None
    assert reason(signed(), None) is None
    assert reason(signed(OTHER)) is Reason.SIGNATURE_INVALID


@pytest.mark.parametrize("publication", [{"version": 4, "epoch": 2}, {"version": 3, "epoch": 1}, {}, None])
def test_a_signature_holds_for_one_place_in_the_order(publication: Any) -> None:
    assert reason(signed(publication=publication)) is Reason.SIGNATURE_INVALID


def test_a_signature_holds_for_one_scope() -> None:
    raw = orjson.loads(signed())
    raw["scope"]["gateway"] = "other"
    assert reason(orjson.dumps(raw)) is Reason.SIGNATURE_INVALID


def test_a_signature_holds_for_one_content() -> None:
    raw = orjson.loads(signed())
    raw["overlay"]["candidates"][0]["rank"] = 5
    assert reason(orjson.dumps(raw)) is Reason.DIGEST_MISMATCH
    assert reason(build.resealed(raw)) is Reason.SIGNATURE_INVALID


@pytest.mark.parametrize(
    "signature",
    [
        {},
        1,
        {"algorithm": "rsa", "value": "AAAA"},
        {"algorithm": "ed25519", "value": "no base64!"},
        {"algorithm": "ed25519", "value": "é"},
        {"algorithm": "ed25519", "value": ""},
        {"algorithm": "ed25519", "value": 1},
    ],
)
def test_what_is_no_signature_is_invalid(signature: Any) -> None:
    assert reason(signed(signature=signature)) is Reason.SIGNATURE_INVALID
    assert reason(signed(signature=signature), None) is None


def test_an_unsigned_document_lacks_a_signature() -> None:
    body = build.document().published(3, 2, leader="d", published_at=build.NOW)
    assert reason(body) is Reason.SIGNATURE_MISSING
    assert reason(signed(signature=None)) is Reason.SIGNATURE_MISSING
    legacy = orjson.dumps(orjson.loads(body)["overlay"])
    assert reason(legacy) is Reason.SIGNATURE_MISSING


def test_a_private_key_that_is_none_is_a_fault_of_the_configuration() -> None:
    locked = private_pem(KEY, BestAvailableEncryption(b"x"))
    for wrong, words in (
        (b"", "no unencrypted PEM"),
        (b"key", "no unencrypted PEM"),
        (public_pem(KEY), "no unencrypted PEM"),
        (locked, "no unencrypted PEM"),
        (private_pem(generate_private_key(SECP256R1())), "not Ed25519 but"),
    ):
        with pytest.raises(ConfigError, match=f"{words}.*openssl genpkey -algorithm ed25519") as caught:
            signing.signer(wrong)
        assert caught.value.reason is Reason.CONFIG_WRONG_TYPE


def test_a_public_key_that_is_none_is_a_fault_of_the_configuration() -> None:
    for wrong, words in (
        (b"", "no PEM public key"),
        (b"x" * 31, "no PEM public key"),
        (private_pem(KEY), "no PEM public key.*openssl pkey -in KEY -pubout"),
        (public_pem(generate_private_key(SECP256R1())), "not Ed25519 but"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            verify(signed(), key=wrong)
        assert caught.value.reason is Reason.CONFIG_WRONG_TYPE


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_cryptography(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return real(name, *rest, **more)

    body = signed()
    monkeypatch.setattr(builtins, "__import__", without_cryptography)
    for call in (lambda: signing.signer(b""), lambda: verify(body, key=PUBLIC)):
        with pytest.raises(ConfigError, match=r"pip install 'llm-grid\[signing\]'") as caught:
            call()
        assert caught.value.reason is Reason.EXTRA_MISSING
    assert verify(body).accepted  # without a key nothing needs it
