"""The characters that one position of a regular expression accepts: ranges, and named groups."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

#: Whether one character belongs to a part of a set.
Belongs: TypeAlias = Callable[[str], bool]

#: The categories of RE2. There is no "Cn", the code points without a character; "C" does not include them either.
_CATEGORIES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
CATEGORIES = frozenset(_CATEGORIES.split())
#: The scripts of Unicode as RE2 names them.
_SCRIPTS = """
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi
    Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform
    Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic
    Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew
    Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi
    Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
    Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive
    Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu
    Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian
    Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician
    Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo
    Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan
    Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square
"""
SCRIPTS = frozenset(_SCRIPTS.split())

PERL = {"d": "09", "s": "\t\n\f\r  ", "w": "09AZ__az"}
POSIX = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\x00\x7f",
    "blank": "\t\t  ",
    "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZ__az",
    "xdigit": "09AFaf",
}


class Part(NamedTuple):
    """One part of a set. Two parts are equal if they were written in the same way."""

    #: "ranges" with the two ends of each range, one range after the other; or "group" with the name of a category or a script.
    kind: str
    what: str
    is_negated: bool = False

    def belongs(self, character: str) -> bool:
        if self.kind == "group":
            return _in_group(self.what, character)
        ends = self.what
        return any(ends[i] <= character <= ends[i + 1] for i in range(0, len(ends), 2))


class CharSet(NamedTuple):
    """The characters of one position."""

    parts: tuple[Part, ...]
    is_negated: bool = False
    #: Whether case does not matter (`(?i)`).
    is_folded: bool = False

    def has(self, character: str) -> bool:
        forms = _forms(character) if self.is_folded else (character,)
        return any(any(map(part.belongs, forms)) != part.is_negated for part in self.parts) != self.is_negated


ANY = CharSet((), is_negated=True)
NOT_NEWLINE = CharSet((Part("ranges", "\n\n"),), is_negated=True)


def is_word(character: str) -> bool:
    """Return whether it belongs to RE2's `\\w`, which is ASCII only."""
    return character == "_" or (character.isascii() and character.isalnum())


def _forms(character: str) -> tuple[str, ...]:
    """Return the character with all that differ from it only in case, such as k, K and the Kelvin sign."""
    found = {character}
    for _ in range(3):
        found |= {form for each in found for form in (each.lower(), each.upper(), each.title()) if len(form) == 1}
    if found & {"k", "s"}:
        found |= {"\u212a"} if "k" in found else {"\u017f"}
    return tuple(found)


def _in_group(name: str, character: str) -> bool:
    if name == "Any":
        return True
    if name in CATEGORIES:
        category = unicodedata.category(character)
        return category != "Cn" and category.startswith(name)
    return _in_script(name, character)


def _in_script(name: str, character: str) -> bool:
    """Return whether the character belongs to the script.

    Beyond ASCII its Unicode name shows that, because Python has no table of scripts.
    """
    character = unicodedata.normalize("NFC", character)[0]  # the Kelvin sign is a Latin K
    if character.isascii():
        return name == ("Latin" if character.isalpha() else "Common")
    own = unicodedata.name(character, "")
    if name == "Common":
        return not unicodedata.category(character).startswith(("L", "M"))
    if name == "Inherited":
        return own.startswith("COMBINING ")
    return own.startswith("CJK UNIFIED" if name == "Han" else name.upper().replace("_", " "))
