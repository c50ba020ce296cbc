"""The reference gateway and file delivery, on ``gateway`` and ``flow``.

- ``gateway``: the process; ``app``, ``listener``, ``asgi``: its HTTP side; ``exchange``: one request's way through it;
- ``inbound``, ``request_scan``: reading a request; ``upstreams``, ``relay``: asking a provider and passing back;
- ``entrance``: admission control in front; ``observed``: health; ``gateway_metrics``: its metrics;
- ``sync``, ``forms``, ``delivery``, ``eds``, ``addresses``: verified documents into files, for Envoy too.
"""
