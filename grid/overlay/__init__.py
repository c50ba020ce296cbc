"""Render: wire models, canonical form and revision, building and verifying envelopes, diff. Pure."""
