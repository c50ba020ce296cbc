"""Write one EPP page in a known state: ``python -m grid.sim.make_page --running 8 7 4 --waiting 5 0 1 > page.txt``."""

import argparse
import sys

from grid.sim.epp_page import PROFILES, EppPage
from grid.sim.values import Engine

_LIVED = 600.0
"""s the EPP has been up: long past its first refresh."""


def main() -> None:
    """Write the page to stdout."""
    parser = argparse.ArgumentParser(prog="python -m grid.sim.make_page", description=__doc__)
    parser.add_argument("--profile", default="v0.10", choices=sorted(PROFILES), help="which release's page")
    parser.add_argument("--pool", default="llama", help="the pool's name")
    parser.add_argument("--running", type=int, nargs="+", default=[0, 0], help="requests running, per endpoint")
    parser.add_argument("--waiting", type=int, nargs="+", default=[], help="requests queued, per endpoint")
    parser.add_argument("--kv", type=float, nargs="+", default=[], help="KV cache in use, per endpoint, 0 to 1")
    given = parser.parse_args()
    engines = [
        Engine(
            f"vllm-{place}",
            running,
            given.waiting[place] if place < len(given.waiting) else 0,
            given.kv[place] if place < len(given.kv) else 0.0,
        )
        for place, running in enumerate(given.running)
    ]
    page = EppPage.of(given.profile, given.pool)
    page.tick(engines)
    sys.stdout.buffer.write(page.render(engines, {}, age=_LIVED))


if __name__ == "__main__":
    main()
