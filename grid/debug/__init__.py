"""See: the daemon's HTTP side: health, metrics, overlays, explanations."""
