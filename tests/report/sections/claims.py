"""Numbers of a text, each of which a comparison must claim."""

import re

WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
WORDS |= {"eleven": 11, "twelve": 12}
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
NUMBER = rf"(?<![\w.])(?:\d+(?:\.\d+)*(?:/\d+)?(?: × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?|(?i:{'|'.join(WORDS)})\b)"


class Claims:
    """A text whose numbers are compared, one after the other, with what was used."""

    def __init__(self, text):
        self.text = " ".join(text.split())
        self._claimed = set()

    def __contains__(self, words):
        return words in self.text

    def numbers(self, pattern):
        """Claim the numbers at each ``#`` of a regular expression, which must be found exactly once."""
        found = list(re.finditer(pattern.replace("#", f"({NUMBER})"), self.text))
        assert len(found) == 1, (pattern, len(found), self.text)
        spans = [found[0].span(group) for group in range(1, len(found[0].groups()) + 1)]
        self._claimed |= set(spans)
        return [value(self.text[slice(*span)]) for span in spans]

    def number(self, pattern):
        """Claim the only number of a pattern."""
        (number,) = self.numbers(pattern)
        return number

    def words(self, words):
        """Claim all numbers within these words, whose meaning the caller has compared."""
        start = self.text.index(words)
        found = re.finditer(NUMBER, self.text)
        self._claimed |= {m.span() for m in found if start <= m.start() < start + len(words)}

    def left(self):
        """Return what nothing has claimed, with the words before it."""
        spans = [m.span() for m in re.finditer(NUMBER, self.text)]
        return [self.text[max(0, start - 30) : end] for start, end in spans if (start, end) not in self._claimed]


def value(words):
    """Return the number that a text has: 0.5, 1/4096, 2 × 10⁻⁷, one."""
    if words.lower() in WORDS:
        return WORDS[words.lower()]
    mantissa, _, exponent = words.partition(" × 10")
    top, _, bottom = mantissa.partition("/")
    return float(top) / float(bottom or 1) * 10.0 ** int(exponent.translate(DIGITS) or 0)
