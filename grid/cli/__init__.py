"""The ``grid`` command. Modules are imported when a command needs them, so that help answers at once."""
