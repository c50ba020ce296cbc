"""Use: the client library of gateways. Chooses a provider for each request from memory."""
