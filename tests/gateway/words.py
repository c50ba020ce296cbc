"""A random source whose words are given beforehand."""

from collections.abc import Iterable


class Words:
    """Like ``random.getrandbits``, from a list; running out of it or asking for another width fails the test."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = iter(words)

    def __call__(self, bits: int) -> int:
        word = next(self._words)
        assert bits == 32
        assert 0 <= word < 1 << 32
        return word
