"""The control plane's process: schedule, cycle, reload, shutdown."""
