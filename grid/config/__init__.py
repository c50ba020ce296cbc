"""The configuration file: its models, loading and checking. Does no I/O of the rooms below."""
