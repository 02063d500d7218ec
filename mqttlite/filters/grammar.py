"""The grammar, an extension of Google Pub/Sub's, and the messages for syntax errors.

The parser is LALR: it reads each token once, and its patterns do not backtrack. A token has one meaning in each place,
so that a name may be any word. `build` interprets the trees.
"""

from functools import cache
from typing import Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from mqttlite.filters.errors import FilterError

MAX_FILTER_BYTES: Final = 1_024
"""The longest expression: four times Google's limit, for paths into payloads. Parsing it takes about two
milliseconds."""

GRAMMAR: Final = r"""
start: _expression
_expression: _term | all | any
all: _term (AND _term)+
any: _term (OR _term)+
_term: negation | _condition
negation: (NOT | MINUS) _term
_condition: "(" _expression ")" | exists | has_prefix | prefix | comparison

exists: ATTRIBUTES ":" key | PAYLOAD ":" path | HAS_ATTRIBUTE "(" key_in_quotes ")"
has_prefix: HAS_PREFIX "(" _field "," STRING ")"
prefix: (attribute | inner) ":" STRING | topic ":" STRING
comparison: _field OPERATOR value

_field: attribute | inner | payload | topic | qos | retain
attribute: ATTRIBUTES "." key
inner: PAYLOAD "." path | PAYLOAD index ("." _key | index)*
payload: PAYLOAD
topic: TOPIC
qos: QOS
retain: RETAIN
path: _key ("." _key | index)*
index: "[" INDEX "]"
key: _key
key_in_quotes: STRING
_key: NAME | STRING
value: STRING | NUMBER | TRUE | FALSE | NULL

ATTRIBUTES: /attributes(?![A-Za-z0-9_-])/
PAYLOAD: /payload(?![A-Za-z0-9_-])/
TOPIC: /topic(?![A-Za-z0-9_-])/
QOS: /qos(?![A-Za-z0-9_-])/
RETAIN: /retain(?![A-Za-z0-9_-])/
HAS_ATTRIBUTE: /hasAttribute(?![A-Za-z0-9_-])/
HAS_PREFIX: /hasPrefix(?![A-Za-z0-9_-])/
AND: /AND(?![A-Za-z0-9_-])/
OR: /OR(?![A-Za-z0-9_-])/
NOT: /NOT(?![A-Za-z0-9_-])/
MINUS: "-"
TRUE: /true(?![A-Za-z0-9_-])/
FALSE: /false(?![A-Za-z0-9_-])/
NULL: /null(?![A-Za-z0-9_-])/
NAME: /[A-Za-z0-9_-]+/
STRING: /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/s
NUMBER: /-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?(?![A-Za-z0-9_.-])/
INDEX: /[0-9]{1,6}(?![0-9])/
OPERATOR: /!=|<=|>=|=|<|>/
%ignore /[ \t\r\n]+/
"""

_EXPECTED: Final[tuple[tuple[str, str, str], ...]] = (
    ("ATTRIBUTES", "a condition", 'attributes.region = "us"'),
    ("NUMBER", "a value", '"us", 42 or true'),
    ("NAME", "a name, in quotes if it has other characters than letters, digits, - and _", '"iana.org/language_tag"'),
    ("INDEX", "a number", "payload.items[0]"),
    ("RSQB", '"]"', "payload.items[0]"),
    ("OPERATOR", "a comparison: =, !=, <, <=, > or >=", "payload.order.total > 1000"),
    ("COLON", '":" and the name that a message must have', "attributes:region"),
    ("DOT", '"." and the name of an attribute', 'hasPrefix(attributes.region, "eu-")'),
    ("STRING", "text in quotes", '"us"'),
    ("AND", "AND or the end", 'attributes.region = "us" AND attributes.tier = "1"'),
    ("OR", "OR or the end", 'attributes.region = "us" OR attributes.region = "eu"'),
    ("COMMA", "a comma and text in quotes", 'hasPrefix(attributes.region, "eu-")'),
    ("LPAR", '"("', 'hasPrefix(attributes.region, "eu-")'),
    ("RPAR", '")"', '(attributes.region = "us" OR attributes.region = "eu")'),
    ("$END", "AND, OR or the end", 'attributes.region = "us" AND attributes.tier = "1"'),
)
"""What was expected, by a token that could follow. The first such token in the table is used."""

_SIGNS: Final = {"==": "=", "&&": "AND", "||": "OR", "<>": "!="}

_FOUND_CHARACTERS: Final = 20
"""How many characters of the found text an error shows."""


@cache
def parser() -> Lark:
    """The parser. Creating it takes about a tenth of a second, once."""
    return Lark(GRAMMAR, parser="lalr", propagate_positions=True)


def parse_tree(expression: str) -> "Tree[Token]":
    """The tree below `start`. Raises `FilterError`."""
    try:
        size = len(expression.encode())
    except UnicodeEncodeError as error:
        raise FilterError(error.start + 1, "it is not text that UTF-8 can hold", "") from None
    if size > MAX_FILTER_BYTES:
        raise FilterError(1, f"it has {size} bytes: a filter may have {MAX_FILTER_BYTES}", "")
    try:
        root = parser().parse(expression).children[0]
    except UnexpectedInput as error:
        raise _error(error, expression) from None
    assert isinstance(root, Tree)
    return root


def _error(error: UnexpectedInput, expression: str) -> FilterError:
    at = len(expression)
    accepted: set[str] = set()
    if isinstance(error, UnexpectedToken):
        accepted = set(error.accepts or error.expected)
        if error.token.type != "$END":
            at = error.token.start_pos or 0
    else:
        assert isinstance(error, UnexpectedCharacters)
        accepted = set(error.allowed)
        at = int(error.pos_in_stream or 0)
    _, expected, example = next(each for each in _EXPECTED if each[0] in accepted)
    if {"AND", "OR"} <= accepted and expected == "AND or the end":
        expected = "AND, OR or the end"
    found = _found_at(expression, at)
    return FilterError(at + 1, f"found {found}, and expected {expected}{_hint(expression[at:], accepted)}", example)


def _found_at(expression: str, at: int) -> str:
    rest = expression[at:].split(maxsplit=1)
    if not rest:
        return "the end"
    word = rest[0]
    return f"{word[:_FOUND_CHARACTERS]}…" if len(word) > _FOUND_CHARACTERS else word


def _hint(rest: str, accepted: set[str]) -> str:
    """A hint at what was probably meant."""
    word = rest.split(maxsplit=1)[0] if rest.strip() else ""
    if word.upper() in ("AND", "OR", "NOT") and word != word.upper():
        return f" (operators are in upper case: {word.upper()})"
    for sign, meant in _SIGNS.items():
        if rest.startswith(sign) or (sign == "==" and rest.startswith("=")):
            return f" (it is written {meant})"
    if (word == "OR" and "AND" in accepted) or (word == "AND" and "OR" in accepted):
        return " (AND and OR are not mixed without parentheses)"
    if rest[:1] in ("'", '"') and "STRING" in accepted:
        return " (the text has no end)"
    if "NUMBER" in accepted and word:
        return " (text is in quotes)"
    return ""
