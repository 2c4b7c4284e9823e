"""Porter's stemmer (Porter, "An algorithm for suffix stripping", 1980), with the departures of NLTK's version.

ROUGE compares stems, and published numbers use NLTK's: longer suffixes such as "fulli", short words in "-ies", and a
few irregular words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

IRREGULAR = {
    "skies": "sky",
    "sky": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}
SECOND = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "fulli": "ful",
}
THIRD = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
# Longer endings come before those that they end in.
FOURTH = (
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return the stem of a word in lower case.

    >>> [stem(word) for word in ("relational", "hopping", "happily", "skies", "generously")]
    ['relat', 'hop', 'happili', 'sky', 'gener']
    """
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plurals, _past, _final_y, _second, _third, _fourth, _final_e, _double_l):
        word = step(word)
    return word


def _is_consonant(word: str, place: int) -> bool:
    letter = word[place]
    if letter in "aeiou":
        return False
    return letter != "y" or place == 0 or not _is_consonant(word, place - 1)


def _measure(stem: str) -> int:
    """Return how often a vowel is followed by a consonant: Porter's m."""
    kinds = [_is_consonant(stem, place) for place in range(len(stem))]
    return sum(consonant and not before for before, consonant in pairwise(kinds))


def _has_vowel(stem: str) -> bool:
    return any(not _is_consonant(stem, place) for place in range(len(stem)))


def _ends_double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _ends_cvc(word: str) -> bool:
    """Tell whether a word ends in consonant, vowel and consonant (not w, x or y), or is a vowel and a consonant."""
    if len(word) >= 3:
        kinds = [_is_consonant(word, place) for place in range(len(word) - 3, len(word))]
        if kinds == [True, False, True] and word[-1] not in "wxy":
            return True
    return len(word) == 2 and not _is_consonant(word, 0) and _is_consonant(word, 1)


def _plurals(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for ending, new in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            return word[: len(word) - len(ending)] + new
    return word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word[: len(word) - len(ending)]
        if word.endswith(ending) and _has_vowel(rest):
            return _mended(rest)
    return word


def _mended(rest: str) -> str:
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_double(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_cvc(rest) else rest


def _final_y(word: str) -> str:
    rest = word[:-1]
    return rest + "i" if word.endswith("y") and len(rest) > 1 and _is_consonant(rest, len(rest) - 1) else word


def _replaced(word: str, endings: dict[str, str], allowed: Callable[[str], bool]) -> str:
    for ending, new in endings.items():
        if word.endswith(ending):
            rest = word[: len(word) - len(ending)]
            return rest + new if allowed(rest) else word
    return word


def _second(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _second(word[:-4] + "al")
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _replaced(word, SECOND, lambda rest: _measure(rest) > 0)


def _third(word: str) -> str:
    return _replaced(word, THIRD, lambda rest: _measure(rest) > 0)


def _fourth(word: str) -> str:
    for ending in FOURTH:
        if word.endswith(ending):
            rest = word[: len(word) - len(ending)]
            enough = _measure(rest) > 1 and (ending != "ion" or rest[-1] in "st")
            return rest if enough else word
    return word


def _final_e(word: str) -> str:
    if not word.endswith("e"):
        return word
    rest = word[:-1]
    return rest if _measure(rest) > 1 or (_measure(rest) == 1 and not _ends_cvc(rest)) else word


def _double_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
