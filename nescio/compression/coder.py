"""Arithmetic coding of whole numbers by probabilities that are learned on the way (range coder: Martin, 1979; as in LZMA and CABAC).

Every number is a chain of yes-or-no decisions, each with a context that remembers how such decisions went: is it zero, its sign, its number
of digits, its leading digits. Nothing but the code is stored, no table, and long runs of zeros cost next to nothing. Two memories a
context, a quick and a slow one, are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

ONE = 1 << 16  # probability one
TOP = 1 << 24
FULL = (1 << 32) - 1
QUICK, SLOW = 4, 7
MOST_DIGITS = 40


@final
class Context:
    """The probability that a decision is 1: the mean of two memories."""

    __slots__ = ("quick", "slow")

    def __init__(self) -> None:
        self.quick = self.slow = ONE // 2

    def bound(self, span: int) -> int:
        p = (self.quick + self.slow) >> 1
        return (span >> 16) * min(max(p, 32), ONE - 32)

    def learn(self, bit: int) -> None:
        if bit:
            self.quick += (ONE - self.quick) >> QUICK
            self.slow += (ONE - self.slow) >> SLOW
        else:
            self.quick -= self.quick >> QUICK
            self.slow -= self.slow >> SLOW


class Contexts:
    """Contexts by name, made when first used."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], Context] = {}

    def at(self, *key: object) -> Context:
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Context()
        return found


@final
class Encoder(Contexts):
    """Decisions to bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.span = 0, FULL
        self.cache, self.waiting = 0, 1
        self.out = bytearray()

    def bit(self, bit: int, context: Context | None = None) -> None:
        """By a context, or as likely one as the other."""
        bound = self.span >> 1 if context is None else context.bound(self.span)
        if bit:
            self.span = bound
        else:
            self.low += bound
            self.span -= bound
        if context is not None:
            context.learn(bit)
        while self.span < TOP:
            self.span = (self.span << 8) & FULL
            self._shift()

    def _shift(self) -> None:
        if self.low < 0xFF000000 or self.low > FULL:  # no carry can reach the bytes that wait, or it is here
            carry = self.low >> 32
            for i in range(self.waiting):
                self.out.append((self.cache if i == 0 else 0xFF) + carry & 0xFF)
            self.waiting, self.cache = 0, (self.low >> 24) & 0xFF
        self.waiting += 1
        self.low = (self.low & 0x00FFFFFF) << 8

    def bits(self, number: int, width: int) -> None:
        """As it is, highest digit first."""
        for i in reversed(range(width)):
            self.bit(number >> i & 1)

    def count(self, number: int, *key: object) -> None:
        """A whole number from 0 on: the number of its digits in ones, then the digits (Elias, 1975)."""
        digits = (number + 1).bit_length()
        for i in range(1, digits):
            self.bit(1, self.at(*key, "digits", i))
        self.bit(0, self.at(*key, "digits", digits))
        for i in reversed(range(digits - 1)):
            near = self.at(*key, digits, number + 1 >> i + 1) if digits - i <= 4 else None
            self.bit(number + 1 >> i & 1, near)

    def signed(self, numbers: Sequence[int], *key: object) -> None:
        before = (0, 0)
        for number in numbers:
            self.bit(int(number != 0), self.at(*key, "some", before))
            if number:
                self.bit(int(number < 0), self.at(*key, "sign"))
                self.count(abs(number) - 1, *key)
            before = (before[1], int(number != 0))

    def finish(self) -> bytes:
        """The bytes; trailing zeros are left out, for a decoder reads them where nothing is."""
        for _ in range(5):
            self._shift()
        return bytes(self.out[1:]).rstrip(b"\0")  # the first byte is always zero


@final
class Decoder(Contexts):
    """Bytes to decisions, for any bytes; a ValueError where a number has too many digits."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content, self.place = content, 4
        self.code = int.from_bytes(content[:4].ljust(4, b"\0"), "big")
        self.span = FULL

    def bit(self, context: Context | None = None) -> int:
        bound = self.span >> 1 if context is None else context.bound(self.span)
        bit = int(self.code < bound)
        if bit:
            self.span = bound
        else:
            self.code -= bound
            self.span -= bound
        if context is not None:
            context.learn(bit)
        while self.span < TOP:
            self.span = (self.span << 8) & FULL
            byte = self.content[self.place] if self.place < len(self.content) else 0
            self.code, self.place = (self.code << 8 | byte) & FULL, self.place + 1
        return bit

    def bits(self, width: int) -> int:
        number = 0
        for _ in range(width):
            number = number << 1 | self.bit()
        return number

    def count(self, *key: object) -> int:
        digits = 1
        while self.bit(self.at(*key, "digits", digits)):
            digits += 1
            if digits > MOST_DIGITS:
                raise ValueError("a number with too many digits")
        number = 1
        for i in reversed(range(digits - 1)):
            near = self.at(*key, digits, number) if digits - i <= 4 else None
            number = number << 1 | self.bit(near)
        return number - 1

    def signed(self, n: int, *key: object) -> list[int]:
        numbers, before = [], (0, 0)
        for _ in range(n):
            some = self.bit(self.at(*key, "some", before))
            number = 0
            if some:
                sign = self.bit(self.at(*key, "sign"))
                number = self.count(*key) + 1
                number = -number if sign else number
            numbers.append(number)
            before = (before[1], some)
        return numbers
