"""Decide: pure functions of (network, samples, memory, now). No I/O, no clock, no randomness."""
