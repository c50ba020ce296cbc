"""Where the program begins. Imports are done inside, so that Ctrl-C during them ends it without a traceback."""

import signal


def main() -> None:
    """Entry point of the command ``grid``."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from grid.cli.main import main as command

    signal.signal(signal.SIGINT, before)
    command()
