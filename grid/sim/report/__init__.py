"""All simulations in one run, and the page that tells of them: ``docs/balancing.md``."""
