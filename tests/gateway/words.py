"""Random sources whose words are given beforehand."""

from collections.abc import Iterable

from grid.gateway.draws import Bits


class Words:
    """Like ``random.getrandbits``, from a list; running out of it or asking for another width fails the test."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = iter(words)

    def __call__(self, bits: int) -> int:
        word = next(self._words)
        assert bits == 32
        assert 0 <= word < 1 << 32
        return word


class Script:
    """Draws of any width from a list of ``(bits, value)``."""

    def __init__(self, draws: Iterable[tuple[int, int]]) -> None:
        self._draws = iter(draws)

    def __call__(self, bits: int) -> int:
        width, value = next(self._draws)
        assert bits == width
        assert 0 <= value < 1 << width
        return value


class Recorder:
    """Draws from a real source, and keeps what it drew."""

    def __init__(self, source: Bits) -> None:
        self._source = source
        self.drawn: list[tuple[int, int]] = []

    def __call__(self, bits: int) -> int:
        value = self._source(bits)
        self.drawn.append((bits, value))
        return value
