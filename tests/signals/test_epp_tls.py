"""TLS between the scraper and an EPP: whose certificate fails, and how that shows."""

import asyncio
import datetime as dt
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from grid.model import Reason, ScrapeError
from grid.signals.credentials import CredentialFiles, plain_context, system_context
from grid.signals.epp import EppScraper, EppTarget
from tests.signals.pages import current, page
from tests.signals.test_epp import always, refused, scrape
from tests.support.http_server import Answer, serve
from tests.support.raw_server import raw_server, refusing_tls_server

GOOD = always(Answer(200, page(*current())))


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(ca: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return path


def server_context(ca: trustme.CA, *names: str, client_ca: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_files(ca: trustme.CA, folder: Path, name: str = "grid") -> dict[str, Any]:
    issued = ca.issue_cert(f"{name}.example")
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    return {"cert_file": cert, "key_file": key}


class TestServerCertificates:
    async def test_with_its_own_authority(self, ca: trustme.CA, ca_file: Path) -> None:
        async with serve(GOOD, ssl_context=server_context(ca)) as origin:
            assert (await scrape(origin, ca_file=ca_file)).reading.ready == 3

    async def test_a_context_from_outside(self, ca: trustme.CA) -> None:
        context = ssl.create_default_context()
        ca.configure_trust(context)
        async with serve(GOOD, ssl_context=server_context(ca)) as origin:
            scraper = EppScraper("east", EppTarget(origin), timeout=30, ssl_context=context)
            assert (await scraper.scrape()).reading.ready == 3
            await scraper.aclose()

    async def test_an_authority_nobody_knows(self, ca: trustme.CA) -> None:
        async with serve(GOOD, ssl_context=server_context(ca)) as origin:
            error = await refused(origin)
        assert error.reason is Reason.TLS_FAILED
        assert "its certificate is not accepted" in error.message

    async def test_a_certificate_for_another_name(self, ca: trustme.CA, ca_file: Path) -> None:
        async with serve(GOOD, ssl_context=server_context(ca, "epp.example")) as origin:
            error = await refused(origin, ca_file=ca_file)
        assert error.reason is Reason.TLS_FAILED
        assert "mismatch" in error.message

    async def test_an_expired_certificate(self, ca: trustme.CA, ca_file: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        ca.issue_cert("127.0.0.1", not_after=past).configure_cert(context)
        async with serve(GOOD, ssl_context=context) as origin:
            error = await refused(origin, ca_file=ca_file)
        assert error.reason is Reason.TLS_FAILED
        assert "expired" in error.message

    async def test_a_port_without_tls(self) -> None:
        async def script(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None: ...

        async with raw_server(script) as server:
            port = int(server.origin.rpartition(":")[2])
        plain = await asyncio.start_server(answer_at_once, "127.0.0.1", port)
        async with plain:
            error = await refused(f"https://127.0.0.1:{port}/metrics")
        assert error.reason is Reason.TLS_FAILED
        assert "does not speak TLS" in error.message

    async def test_plain_http_to_a_tls_port(self, ca: trustme.CA) -> None:
        async with serve(GOOD, ssl_context=server_context(ca)) as origin:
            error = await refused(origin.replace("https", "http"))
        assert error.reason in (Reason.DISCONNECTED, Reason.NOT_HTTP)


async def answer_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a Go server does with bytes that are no HTTP."""
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request")
    await writer.drain()
    writer.close()


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
class TestClientCertificates:
    async def test_a_good_one(self, ca: trustme.CA, ca_file: Path, tmp_path: Path, version: ssl.TLSVersion) -> None:
        context = server_context(ca, client_ca=ca)
        context.maximum_version = version
        async with serve(GOOD, ssl_context=context) as origin:
            files = client_files(ca, tmp_path)
            assert (await scrape(origin, ca_file=ca_file, **files)).reading.ready == 3

    @pytest.mark.parametrize("given", ["none", "of another authority"])
    async def test_refused_by_an_alert(
        self, ca: trustme.CA, ca_file: Path, tmp_path: Path, version: ssl.TLSVersion, given: str
    ) -> None:
        """Under TLS 1.3 the handshake looks good to the client and the alert comes with its first read."""
        context = server_context(ca, client_ca=ca)
        context.maximum_version = version
        files: dict[str, Any] = {} if given == "none" else client_files(trustme.CA(), tmp_path)
        with refusing_tls_server(context) as origin:
            error = await refused(f"{origin}/metrics", ca_file=ca_file, **files)
        # A server of version 1.2 may say no more than "handshake failure" where a certificate is missing.
        unsaid = given == "none" and version is VERSIONS[0]
        assert error.reason is (Reason.TLS_FAILED if unsaid else Reason.TLS_CLIENT_REFUSED)
        assert "cert_file" in error.hint

    async def test_refused_without_a_word(self, ca: trustme.CA, ca_file: Path, version: ssl.TLSVersion) -> None:
        """Some servers reset the connection before their alert can be read."""
        context = server_context(ca, client_ca=ca)
        context.maximum_version = version
        async with serve(GOOD, ssl_context=context) as origin:
            error = await refused(origin, ca_file=ca_file)
        assert error.reason is (Reason.TLS_FAILED if version is VERSIONS[0] else Reason.TLS_CLIENT_REFUSED)
        assert "hung up" in error.message
        assert "cert_file" in error.hint


class TestMaterial:
    async def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        error = await refused("https://127.0.0.1:1/", ca_file=tmp_path / "none.pem")
        assert error.reason is Reason.TLS_MATERIAL
        assert "none.pem" in error.message
        assert "No such file" in error.message

    async def test_files_that_hold_something_else(self, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        path.write_text("not a certificate")
        assert (await refused("https://127.0.0.1:1/", ca_file=path)).reason is Reason.TLS_MATERIAL

    async def test_a_key_of_another_certificate(self, ca: trustme.CA, tmp_path: Path) -> None:
        files = client_files(ca, tmp_path) | {"key_file": client_files(ca, tmp_path, "other")["key_file"]}
        error = await refused("https://127.0.0.1:1/", **files)
        assert error.reason is Reason.TLS_MATERIAL
        assert "MISMATCH" in error.message

    async def test_an_encrypted_key_asks_nobody(self, ca: trustme.CA, tmp_path: Path) -> None:
        files = client_files(ca, tmp_path)
        key = serialization.load_pem_private_key(files["key_file"].read_bytes(), None)
        files["key_file"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.BestAvailableEncryption(b"pass"),
            )
        )
        error = await refused("https://127.0.0.1:1/", **files)
        assert error.reason is Reason.TLS_MATERIAL
        assert "encrypted" in error.message

    async def test_files_are_not_looked_at_for_plain_http(self, tmp_path: Path) -> None:
        async with serve(GOOD) as origin:
            assert (await scrape(origin, ca_file=tmp_path / "none.pem")).reading.ready == 3

    async def test_renewed_files_count_at_once(self, ca: trustme.CA, ca_file: Path, tmp_path: Path) -> None:
        """Both sides change their authority; the connection that stood before is not used again."""
        newer = trustme.CA()
        async with serve(GOOD, ssl_context=server_context(newer)) as origin:
            scraper = EppScraper("east", EppTarget(origin, ca_file=ca_file), timeout=30)
            with pytest.raises(ScrapeError) as caught:
                await scraper.scrape()
            assert caught.value.reason is Reason.TLS_FAILED
            newer.cert_pem.write_to_path(tmp_path / "new.pem")
            shutil.move(tmp_path / "new.pem", ca_file)
            assert (await scraper.scrape()).reading.ready == 3
            first = scraper._client
            assert (await scraper.scrape()).reading.ready == 3
            assert scraper._client is first
            await scraper.aclose()

    def test_contexts_are_shared(self) -> None:
        assert CredentialFiles().load().context is CredentialFiles().load().context is system_context()
        assert CredentialFiles(tls=False).load().context is None
        assert plain_context() is plain_context()
        assert plain_context().cert_store_stats()["x509"] == 0
