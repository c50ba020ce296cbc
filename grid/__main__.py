"""``python -m grid`` is the command ``grid``."""

from grid.cli.entry import main

if __name__ == "__main__":
    main()
