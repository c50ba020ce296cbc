"""Observe: metric dialects, the scan of exposition pages, scrapers, readiness probes, the sample store."""
