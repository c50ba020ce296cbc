"""Every reason code of Grid, in one enumeration. ``docs/reasons.md`` is the same table, generated from here."""

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """A bounded code for why something is as it is; the same in logs, metrics, JSON and errors.

    Each member carries the ``family`` it belongs to, its ``meaning`` and the ``hint`` an operator gets: the likely
    cause and the next step (empty where nothing is wrong).
    """

    family: str
    meaning: str
    hint: str

    def __new__(cls, value: str, family: str, meaning: str, hint: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.family = family
        member.meaning = meaning
        member.hint = hint
        return member

    @classmethod
    def of(cls, code: str) -> "Reason | None":
        """The reason with this code, None where there is none (a newer program's, say)."""
        return next((reason for reason in cls if reason.value == code), None)

    # --- the exchange with a source -------------------------------------------------------------------------------
    DNS_FAILED = ("dns_failed", "exchange", "the host name does not resolve", "check the host in the source URL")
    CONNECT_REFUSED = (
        "connect_refused",
        "exchange",
        "nothing listens at the address",
        "check host and port (an EPP serves metrics on 9090); an EPP that drains closes this port up to 30 s early",
    )
    CONNECT_FAILED = (
        "connect_failed",
        "exchange",
        "no connection to the address",
        "check route, firewall and network policy",
    )
    DISCONNECTED = (
        "disconnected",
        "exchange",
        "the connection broke before an answer came",
        "the EPP may be restarting; the next scrape tells",
    )
    BAD_URL = (
        "bad_url",
        "exchange",
        "the source URL cannot be used",
        "write it as http://host:port/metrics or https://host:port/metrics",
    )
    NOT_HTTP = (
        "not_http",
        "exchange",
        "what answers at the address does not speak HTTP",
        "check host, port and scheme of the source URL",
    )
    TIMEOUT = (
        "timeout",
        "exchange",
        "the whole exchange took longer than scrape_timeout",
        "raise scrape_timeout, or look at the EPP's CPU and the size of its page",
    )
    TLS_FAILED = (
        "tls_failed",
        "exchange",
        "the TLS handshake failed",
        "check ca_file, the certificate's names and dates, and whether the port speaks TLS at all",
    )
    TLS_CLIENT_REFUSED = (
        "tls_client_refused",
        "exchange",
        "the server refused our client certificate",
        "check cert_file and key_file against the EPP's --metrics-client-ca-file",
    )
    TLS_MATERIAL = (
        "tls_material",
        "exchange",
        "ca_file, cert_file or key_file cannot be used",
        "check that the files exist, are PEM and belong together",
    )
    REDIRECT_REFUSED = (
        "redirect_refused",
        "exchange",
        "the answer points to another origin, where the token must not go",
        "put the final URL into the source",
    )
    REDIRECT_LOOP = (
        "redirect_loop",
        "exchange",
        "the answer redirects again and again",
        "open the URL by hand and follow it; put the final URL into the source",
    )
    HTTP_STATUS = (
        "http_status",
        "exchange",
        "the answer's status is not 200",
        "open the URL by hand and read the body",
    )
    GATHER_FAILED = (
        "gather_failed",
        "exchange",
        "the EPP failed to collect its own metrics (500)",
        "look for endpoints with the same name in the EPP's list; its log names the duplicate series",
    )
    # --- credentials: one family, told apart ------------------------------------------------------------------------
    CREDENTIAL_FILE = (
        "credential_file",
        "credential",
        "the token file cannot be read or is empty",
        "check path, permissions and content of token_file",
    )
    CREDENTIAL_MISSING = (
        "credential_missing",
        "credential",
        "401: the EPP wants a bearer token and got none it recognises",
        "set token_file of the source",
    )
    CREDENTIAL_DENIED = (
        "credential_denied",
        "credential",
        "403: the token is good but may not read /metrics",
        "grant its account get on the non-resource URL /metrics",
    )
    CREDENTIAL_REJECTED = (
        "credential_rejected",
        "credential",
        "500 'Authentication failed': a wrong or expired token, or an EPP that may not review tokens",
        "renew the token; if every token fails, let the EPP's account create tokenreviews",
    )
    CREDENTIAL_UNCHECKED = (
        "credential_unchecked",
        "credential",
        "500 'Authorization for user ... failed': the EPP took the token, but could not ask whether it may read",
        "let the EPP's own account create subjectaccessreviews, and look into its log",
    )
    # --- the page -----------------------------------------------------------------------------------------------------
    TOO_LARGE = (
        "too_large",
        "page",
        "the content is larger than its limit",
        "raise max_page of the source, or cap the fairness ids clients may invent",
    )
    TRUNCATED = ("truncated", "page", "the page was cut short", "look at proxies between here and the EPP")
    BAD_ENCODING = ("bad_encoding", "page", "the body is not in the encoding it claims", "look at proxies in between")
    NOT_METRICS = (
        "not_metrics",
        "page",
        "the answer is no metrics page (html, JSON or binary)",
        "check port and path; a login page or an ingress answers here",
    )
    EMPTY_PAGE = ("empty_page", "page", "the page has no samples at all", "check that the path is an EPP's /metrics")
    METRIC_MISSING = (
        "metric_missing",
        "page",
        "a pool metric that is looked for is not on the page, by any name known",
        "an EPP writes them about 5 s after its start; later on this is another program, or renamed metrics",
    )
    POOL_MISSING = (
        "pool_missing",
        "page",
        "the page has pools, but not the one named",
        "check source.pool against the pools named",
    )
    POOL_AMBIGUOUS = (
        "pool_ambiguous",
        "page",
        "the page has several pools and none was named",
        "set source.pool",
    )
    BAD_VALUE = (
        "bad_value",
        "page",
        "a wanted series has no usable value (NaN, infinite, negative or unreadable)",
        "taken as unknown; look at the engines' own metrics",
    )
    DUPLICATE_SERIES = (
        "duplicate_series",
        "page",
        "a wanted series is on the page twice with the same labels",
        "the first one counts; look for a proxy that joins pages",
    )
    NO_READY_ENDPOINTS = (
        "no_ready_endpoints",
        "page",
        "the pool has no ready endpoint",
        "look at the pool's engines",
    )
    MEANS_FROZEN = (
        "means_frozen",
        "page",
        "the means belong to endpoints that are gone, so they say nothing",
        "nothing to do; they return with the first ready endpoint",
    )
    MEANS_FLOORED = (
        "means_floored",
        "page",
        "an EPP of this age rounds its mean queue down and has no mean of running requests",
        "update the EPP to llm-d 0.9 or newer",
    )
    READY_MAYBE_FROZEN = (
        "ready_maybe_frozen",
        "page",
        "an EPP of this age may keep an old ready count after its endpoints are gone",
        "add a readiness probe, or update the EPP",
    )
    POOL_DELETED = (
        "pool_deleted",
        "page",
        "means and ready count stand but no endpoint is listed: the pool object is gone",
        "check the InferencePool of this EPP",
    )
    ENDPOINTS_STALE = (
        "endpoints_stale",
        "page",
        "some endpoints do not answer the EPP",
        "look at the engines the EPP lists as stale",
    )
    LIVE_READY_HINT = (
        "live_ready_hint",
        "page",
        "the live ready count cannot be relied on here, so the EPP's own count is used",
    )
    BYPASS = (
        "bypass",
        "page",
        "engines hold more than the EPP has in flight: traffic reaches them past the EPP",
        "counted from the engines' means, which are up to 7 s old; send all traffic through the EPP",
    )
    RESTARTED = ("restarted", "page", "the EPP started again since the last scrape")
    POLL_ERRORS = (
        "poll_errors",
        "page",
        "the EPP fails to scrape some of its engines",
        "look at the engines' metrics ports",
    )
    # --- Prometheus as the source -------------------------------------------------------------------------------------
    PROMETHEUS_ERROR = (
        "prometheus_error",
        "prometheus",
        "the Prometheus server refused or failed the query",
        "run the query it names on that server",
    )
    PROMETHEUS_EMPTY = (
        "prometheus_empty",
        "prometheus",
        "the Prometheus server has no such series now",
        "check match and pool, and that the server's own scrape of the EPP is up",
    )
    PROMETHEUS_SEVERAL = (
        "prometheus_several",
        "prometheus",
        "several series answer where one is meant",
        "narrow match until one target remains",
    )
    # --- readiness probes ---------------------------------------------------------------------------------------------
    PROBE_DENIED = (
        "probe_denied",
        "readiness",
        "the readiness probe says that the provider is not ready",
        "open the probe's URL by hand",
    )
    PROBE_FAILED = (
        "probe_failed",
        "readiness",
        "the readiness probe got no answer",
        "check the probe's URL and the way there",
    )
    # --- the policy ---------------------------------------------------------------------------------------------------
    ADMITTED = ("admitted", "policy", "open for new work")
    DISABLED = ("disabled", "policy", "switched off in the configuration", "set disabled: false to bring it back")
    DRAINED = ("drained", "policy", "drained by an operator", "grid undrain brings it back")
    ACCESS_DENIED = ("access_denied", "policy", "the provider's access rule does not admit this gateway")
    NEVER_READ = (
        "never_read",
        "policy",
        "no scrape has succeeded yet: offered behind every fresh provider",
        "the last error of the provider says why",
    )
    STALE = (
        "stale",
        "policy",
        "the newest sample is older than the freshness bound: behind every fresh provider",
        "the last error of the provider says why",
    )
    FRESH = ("fresh", "policy", "the newest sample is within the freshness bound")
    ALL_STALE = ("all_stale", "policy", "no provider of the capability is fresh, so the last order stays in use")
    ZERO_READY = (
        "zero_ready",
        "policy",
        "first reading of zero ready endpoints: behind every ready provider",
        "look at the pool's engines",
    )
    NOT_READY = (
        "not_ready",
        "policy",
        "zero ready endpoints in two readings in a row, or denied by its readiness probe",
        "look at the pool's engines",
    )
    READY = ("ready", "policy", "it has ready endpoints")
    LOAD_KNOWN = ("load_known", "policy", "its load is known")
    LOAD_UNKNOWN = ("load_unknown", "policy", "no signal gives its load")
    PRESSURE_ENTER = (
        "pressure_enter",
        "policy",
        "saturation at or above pressure.enter for long enough: existing only",
    )
    PRESSURE_COUNTING = (
        "pressure_counting",
        "policy",
        "saturation at or above pressure.enter, not yet for long enough",
    )
    PRESSURE_HELD = (
        "pressure_held",
        "policy",
        "held back until saturation stays at or below pressure.exit long enough",
    )
    RECOVERED = ("recovered", "policy", "open again after pressure or loss")
    RECOVERING = ("recovering", "policy", "ready again, waiting out the recovery path")
    FIRST_ROUND = (
        "first_round",
        "policy",
        "the first round of scrapes is not complete, so nothing that was offered is removed",
    )
    GROUPED = ("grouped", "policy", "its place in this gateway's order")
    WEIGHTED = ("weighted", "policy", "its share inside the group")
    WEIGHT_HELD = ("weight_held", "policy", "its share stays: the change is inside the dead band, or too soon")
    WEIGHT_LIMITED = ("weight_limited", "policy", "its share moves by one step at most per publication")
    # --- overlay documents (the contract's names first) ---------------------------------------------------------------
    DIGEST_MISMATCH = ("digest_mismatch", "overlay", "the content does not hash to the digest it claims")
    REVISION_DIGEST_MISMATCH = ("revision_digest_mismatch", "overlay", "revision and content digest disagree")
    SCOPE_MISMATCH = ("scope_mismatch", "overlay", "the document is for another network, gateway, namespace or site")
    UNSUPPORTED_SCHEMA_VERSION = ("unsupported_schema_version", "overlay", "the envelope's schema version is not 1.0.0")
    MISSING_SCHEMA_VERSION = ("missing_schema_version", "overlay", "an envelope without schema_version")
    MALFORMED_STRUCTURE = ("malformed_structure", "overlay", "the document is not built as the contract says")
    SIGNATURE_INVALID = ("signature_invalid", "overlay", "the signature does not verify with the key given")
    SIGNATURE_MISSING = ("signature_missing", "overlay", "a key is configured but the document is not signed")
    TOO_MANY_CANDIDATES = (
        "too_many_candidates",
        "overlay",
        "more than 1024 candidates for one gateway",
        "split the network, or limit providers by access",
    )
    NO_CANDIDATES = (
        "no_candidates",
        "overlay",
        "no provider is visible to this gateway, and a document is never empty",
        "check the providers' access rules",
    )
    STABLE_ID_COLLISION = (
        "stable_id_collision",
        "overlay",
        "two candidates hash to the same stable id",
        "rename one of the clusters",
    )
    # --- configuration ------------------------------------------------------------------------------------------------
    CONFIG_UNREADABLE = ("config_unreadable", "config", "the file cannot be read", "check path and permissions")
    CONFIG_SYNTAX = ("config_syntax", "config", "the file is not YAML")
    CONFIG_UNKNOWN_KEY = ("config_unknown_key", "config", "no such setting")
    CONFIG_DUPLICATE_KEY = ("config_duplicate_key", "config", "the same key twice")
    CONFIG_MISSING_KEY = ("config_missing_key", "config", "a required setting is missing")
    CONFIG_WRONG_TYPE = ("config_wrong_type", "config", "the value has the wrong type")
    CONFIG_OUT_OF_RANGE = ("config_out_of_range", "config", "the value is outside its range")
    CONFIG_BAD_REFERENCE = ("config_bad_reference", "config", "a name that is declared nowhere")
    CONFIG_CONFLICT = ("config_conflict", "config", "two settings contradict each other")
    CONFIG_NEEDS_RESTART = (
        "config_needs_restart",
        "config",
        "a setting that cannot change while the daemon runs",
        "restart the daemon, or put the old value back",
    )
    CONFIG_EMPTY = (
        "config_empty",
        "config",
        "no provider, or no gateway, is left in the file",
        "a file that was cut short looks like this; where it is meant, restart the daemon",
    )
    EXTRA_MISSING = ("extra_missing", "config", "the setting needs an optional extra that is not installed")
    # --- the bus ------------------------------------------------------------------------------------------------------
    BUS_UNREACHABLE = ("bus_unreachable", "bus", "no connection to Redis", "check bus.url and that the server runs")
    BUS_TIMEOUT = ("bus_timeout", "bus", "Redis does not answer in time", "the server may be frozen or swapping")
    BUS_AUTH = ("bus_auth", "bus", "Redis refuses the user or the password", "check bus.username and bus.password_file")
    BUS_TLS = ("bus_tls", "bus", "the TLS handshake with Redis failed", "check bus.tls")
    BUS_REFUSED = ("bus_refused", "bus", "Redis answers, but refuses the command", "read its message")
    BUS_WRONG_TYPE = (
        "bus_wrong_type",
        "bus",
        "a key of ours has a type that it never has: something else wrote it",
        "the daemon removes such a key and writes it anew; look for another program that uses this Redis",
    )
    BUS_NO_SERVER = (
        "bus_no_server",
        "bus",
        "no Redis server program was found for the embedded bus",
        "install redis-server, or the extra llm-grid[embedded], or set bus.url",
    )
    UNSUPPORTED_PROTOCOL = (
        "unsupported_protocol",
        "bus",
        "the sender speaks another version of the bus protocol",
        "update the older side",
    )
    HEARTBEAT_MISSED = (
        "heartbeat_missed",
        "bus",
        "no signal frame for three intervals: the link is dead, or no daemon leads",
        "check that grid run is up and that this side reaches the same Redis",
    )
    PUBLICATION_MISMATCH = (
        "publication_mismatch",
        "bus",
        "the document says another place in the order or another revision than what announced it",
        "look for another writer of these keys",
    )
    VERSION_CLASH = (
        "version_clash",
        "bus",
        "the same epoch and version with another revision: the held document stays until a higher one comes",
        "look for a second daemon writing past the lease, or a Redis that lost data",
    )
    STALE_EPOCH = ("stale_epoch", "bus", "another leader has taken over; the write was refused")
    LEASE_HELD = ("lease_held", "bus", "another daemon leads")
    LEASE_LOST = ("lease_lost", "bus", "the leader lease was lost")
    # --- routing ------------------------------------------------------------------------------------------------------
    NO_OVERLAY = (
        "no_overlay",
        "routing",
        "this gateway has never held a document",
        "check that the daemon publishes for this gateway's name (grid overlay list)",
    )
    MODEL_NOT_FOUND = ("model_not_found", "routing", "no candidate serves this model")
    BAD_MODEL = ("bad_model", "routing", "no model, a blank one, or one over 256 bytes")
    CAPACITY_EXHAUSTED = ("capacity_exhausted", "routing", "every provider of the model is held back by pressure")
    NO_HEALTHY_SITE = ("no_healthy_site", "routing", "no provider of the model may take work")
    # --- requests that the reference gateway forwards -----------------------------------------------------------------
    BODY_TOO_LARGE = (
        "body_too_large",
        "forwarding",
        "the request's body is larger than the gateway takes",
        "send less at once; gateways.max_body is the limit",
    )
    BODY_TIMEOUT = ("body_timeout", "forwarding", "the request's body came too slowly", "send the request again")
    HEAD_TOO_LARGE = ("head_too_large", "forwarding", "the request has too many or too long headers", "send fewer")
    UPSTREAM_FAILED = (
        "upstream_failed",
        "forwarding",
        "the provider broke the exchange before it answered",
        "the request may have been worked on; sending it again is for the client to decide",
    )
    UPSTREAM_TIMEOUT = (
        "upstream_timeout",
        "forwarding",
        "the provider did not answer in time",
        "the request may have been worked on; sending it again is for the client to decide",
    )
    UPSTREAM_CREDENTIAL = (
        "upstream_credential",
        "forwarding",
        "the provider refuses the gateway's own credential",
        "check the provider's upstream.token_file",
    )
    SHUTTING_DOWN = (
        "shutting_down",
        "forwarding",
        "this gateway is ending",
        "send the request again, to another gateway",
    )
    # --- request admission --------------------------------------------------------------------------------------------
    QUEUE_FULL = (
        "queue_full",
        "admission",
        "the queue of the request's band and model is full",
        "come back after Retry-After; max_queued bounds the queue, more capacity drains it",
    )
    QUEUE_TIMEOUT = (
        "queue_timeout",
        "admission",
        "the request waited as long as it may",
        "come back after Retry-After; max_wait bounds the wait, and higher bands go first",
    )
    ADMISSION_REFUSED = (
        "admission_refused",
        "admission",
        "refused at the door: it could not have been served in time",
        "give it a later deadline, or come back after Retry-After",
    )
    # --- delivery to a data plane's file ------------------------------------------------------------------------------
    FILE_UNWRITABLE = (
        "file_unwritable",
        "delivery",
        "the file that the data plane reads cannot be written",
        "check the path, its permissions and the space left",
    )
    FILE_NEWER = (
        "file_newer",
        "delivery",
        "the file holds a newer document than the bus, so it stays",
        "look for a Redis that lost data, or a second grid sync that writes the same file",
    )
    ADDRESS_UNKNOWN = (
        "address_unknown",
        "delivery",
        "no address that Envoy could use is known for a provider, so it is left out",
        "set the provider's url to http(s)://host:port without a path; a host name must resolve here",
    )
    ADDRESS_SHARED = (
        "address_shared",
        "delivery",
        "two providers of one model have the same address, and Envoy takes them for one",
        "give each its own address; a Host header alone does not tell endpoints apart",
    )
    ENVOY_UNREACHABLE = (
        "envoy_unreachable",
        "delivery",
        "Envoy's admin side gives no readable answer, so what it runs is unknown",
        "check data_plane.envoy_admin, and that Envoy is up",
    )
    NOT_APPLIED = (
        "not_applied",
        "delivery",
        "Envoy does not run what was written",
        "look into Envoy's log: it may refuse the file, or watch another path",
    )
    # --- what everyone may say ----------------------------------------------------------------------------------------
    USAGE = ("usage", "general", "the command was called wrongly", "grid COMMAND --help shows how")
    NOT_FOUND = ("not_found", "general", "no such thing")
    UNAUTHORIZED = ("unauthorized", "general", "the debug side wants a bearer token", "pass --token-file")
    BAD_REQUEST = (
        "bad_request",
        "general",
        "the request is not built as the endpoint wants it",
        "the detail says where",
    )
    METHOD_NOT_ALLOWED = (
        "method_not_allowed",
        "general",
        "the endpoint does not take this method",
        "GET reads; POST and DELETE change",
    )
    FOREIGN_REQUEST = ("foreign_request", "general", "the request comes by another name or from a foreign page")
    TOO_MANY_LISTENERS = (
        "too_many_listeners",
        "general",
        "too many clients follow the events of this daemon",
        "close some of them",
    )
    LISTEN_FAILED = (
        "listen_failed",
        "general",
        "the HTTP side cannot listen there",
        "set daemon.listen to a free address of this machine",
    )
    RECORDING_DAMAGED = (
        "recording_damaged",
        "general",
        "the recording cannot be read from here on",
        "a cut last line is fine, so this file was changed or mixed with another; record again",
    )
    RECORDING_FAILED = (
        "recording_failed",
        "general",
        "the recording cannot be written",
        "check the path, its permissions and the space left",
    )
    DAEMON_UNREACHABLE = ("daemon_unreachable", "general", "no daemon answers", "check --url and that grid run is up")
    INTERNAL = ("internal", "general", "a fault in Grid itself", "please report it with the log around this time")
