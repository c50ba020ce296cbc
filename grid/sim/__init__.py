"""Drive: simulated sites and EPPs, the demo, load generators, benchmarks."""
