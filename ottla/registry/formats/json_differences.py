"""The differences between two JSON schemas by their names: which are compatible, and the sentence about each of the others."""

from __future__ import annotations

import re
from decimal import Decimal


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


COMPATIBLE = _kinds(
    """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED
    EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED
    MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    ITEM_ADDED_TO_CLOSED_CONTENT_MODEL ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
    """
)
#: A pattern that RE2 cannot read would decide whether there is a difference.
NOT_EVALUATED = "PATTERN_PROPERTIES_NOT_EVALUATED"
#: These kinds are compatible too if the subject's compatibilityPolicy is LENIENT.
LENIENT = COMPATIBLE | _kinds(
    """
    ADDITIONAL_PROPERTIES_NARROWED ADDITIONAL_PROPERTIES_REMOVED UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_PROPERTIES_REMOVED
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """
)
#: The sentences about incompatible differences (Confluent's), by the first pattern that matches a kind.
TEXTS = (
    (
        NOT_EVALUATED,
        "Whether a pattern of patternProperties covers the property at path '{path}' is not known: it has parts that are not "
        "evaluated, such as looking ahead, a back reference or a possessive repetition",
    ),
    (
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN.*",
        "The {reader} schema has an unopen content model and has a required property at path '{path}' which "
        "is missing in the {writer} schema",
    ),
    (
        ".*ADDED_TO_OPEN_CONTENT_MODEL",
        "The {reader} schema has an open content model and has a property or item at path '{path}' which is "
        "missing in the {writer} schema",
    ),
    (
        ".*REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "The {reader} has a closed content model and is missing a property or item present at path '{path}' "
        "in the {writer} schema",
    ),
    (
        ".*REMOVED_NOT_COVERED.*",
        "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} "
        "schema and is not covered by its partially open content model",
    ),
    (
        ".*ADDED_NOT_COVERED.*",
        "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema "
        "and is not covered by its partially open content model",
    ),
    (
        "(TYPE|ENUM_ARRAY|COMBINED_TYPE|COMBINED_TYPE_SUBSCHEMAS)_CHANGED|TYPE_NARROWED",
        "A type at path '{path}' is different between the {reader} schema and the {writer} schema",
    ),
    (
        ".*_NARROWED",
        "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the {writer} schema",
    ),
    (
        ".*_EXTENDED",
        "An array or combined type at path '{path}' has more elements in the {reader} schema than the {writer} schema",
    ),
    (
        ".*_(INCREASED|EXPANDED)",
        "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema",
    ),
    (
        ".*_(DECREASED|REDUCED)",
        "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema",
    ),
    (".*_CHANGED", "The value at path '{path}' is different between the {reader} and {writer} schema"),
    (".*_(ADDED|REMOVED)", "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"),
)


def text_of(kind: str, path: str) -> str:
    sentence = next((text for pattern, text in TEXTS if re.fullmatch(pattern, kind)), "")
    return f'{{errorType:"{kind}", description:"{sentence.replace("{path}", path)}\'}}'


def added_property(required: bool, has_default: bool) -> str:
    if not required:
        return "OPTIONAL_PROPERTY_ADDED_TO"
    return "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO" if has_default else "REQUIRED_PROPERTY_ADDED_TO"


def bound_changed(keyword: str, was: Decimal | None, now: Decimal | None) -> str:
    if was is None or now is None:
        return f"{snake(keyword)}_{'ADDED' if was is None else 'REMOVED'}"
    return f"{snake(keyword)}_{'INCREASED' if was < now else 'DECREASED'}"


def snake(keyword: str) -> str:
    """Return a keyword as names of differences have it: MAX_LENGTH for maxLength."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", keyword).upper()


def multiple_changed(was: Decimal | None, now: Decimal | None) -> str:
    if was is None or now is None:
        return "MULTIPLE_OF_ADDED" if was is None else "MULTIPLE_OF_REMOVED"
    if _divides(was, now):
        return "MULTIPLE_OF_EXPANDED"
    return "MULTIPLE_OF_REDUCED" if _divides(now, was) else "MULTIPLE_OF_CHANGED"


def _divides(part: Decimal, whole: Decimal) -> bool:
    try:
        return bool(part) and whole % part == 0
    except ArithmeticError:  # the quotient would have more digits than are computed
        return False


def matching(edges: dict[int, list[int]]) -> dict[int, int]:
    """Return a largest set of edges of which no two share an end (Kuhn's algorithm)."""
    owner: dict[int, int] = {}

    def augment(index: int, seen: set[int]) -> bool:
        for other in edges[index]:
            if other not in seen:
                seen.add(other)
                if other not in owner or augment(owner[other], seen):
                    owner[other] = index
                    return True
        return False

    for index in edges:
        augment(index, set())
    return {index: other for other, index in owner.items()}
