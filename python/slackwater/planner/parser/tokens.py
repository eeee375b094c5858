"""A cursor over the tokens of a statement.

sqlglot's tokenizer of the dialect ``spark`` finds the tokens; this module gives them back as
what the statement grammar needs: words, quoted identifiers, strings, numbers, symbols. It keeps
offsets into the text, because query bodies are cut out of it and never generated anew.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as SqlglotToken
from sqlglot.tokenizer_core import TokenType

from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.statements import TextSlice
from slackwater.repr.errors import SlackwaterError, TextPosition, user_error

# sqlglot swallows the rest of a statement that begins with SHOW, EXPLAIN, FETCH and others as one
# string. Behind an opening parenthesis such a word is a word.
_GUARD = "("
_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
_IDENTIFIER = re.compile(r"(?=.*[^0-9])\w+")
_LITERAL_OR_COMMENT = re.compile(r"""--[^\n]*|\w*["']|`|/\*|\{#""")
_ESCAPE = re.compile(
    r"\\(?:([0-3][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''|\"\"", re.DOTALL
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


class Kind(enum.Enum):
    WORD = "word"
    QUOTED = "quoted identifier"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    BROKEN = "unterminated literal"
    END = "end of the statement"


_BYTES = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'")


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is the value (unquoted, escapes resolved); `start` and `end` are offsets."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, word: str) -> bool:
        return self.kind is Kind.WORD and self.text.upper() == word

    def is_symbol(self, symbol: str) -> bool:
        return self.kind is Kind.SYMBOL and self.text == symbol

    @property
    def as_bytes(self) -> bytes | None:
        """The bytes of ``X'00ff'``; None: it is something else."""
        found = None if self.kind is Kind.STRING else _BYTES.fullmatch(self.text)
        return None if found is None else bytes.fromhex(found[1])

    @property
    def upper(self) -> str:
        """The keyword that this could be, or empty."""
        return self.text.upper() if self.kind is Kind.WORD else ""


def tokenize(text: str) -> tuple[Token, ...]:
    """The tokens of `text`, ended by one of kind END.

    Never raises: where the text has no more tokens (an unterminated literal), one of kind
    BROKEN stands for the rest.
    """
    try:
        found, end = _sqlglot_tokens(text), len(text)
    except TokenError:
        end = _broken_at(text)
        found = _sqlglot_tokens(text[:end])
    tokens = list(_words(text, found))
    if end < len(text):
        tokens.append(Token(Kind.BROKEN, text[end:], end, len(text)))
    tokens.append(Token(Kind.END, "", len(text), len(text)))
    return tuple(tokens)


def _sqlglot_tokens(text: str) -> list[SqlglotToken]:
    return Dialect.get_or_raise("spark").tokenize(_GUARD + text)[1:]


def _broken_at(text: str) -> int:
    """The offset of the first literal or comment that does not tokenize on its own."""
    position = 0
    while (match := _LITERAL_OR_COMMENT.search(text, position)) is not None:
        end = match.end() if match[0].startswith("--") else _literal_end(text, match)
        try:
            _sqlglot_tokens(text[match.start() : end])
        except TokenError:
            return match.start()
        position = end
    return 0


def _literal_end(text: str, opening: re.Match[str]) -> int:
    """The offset behind the literal or comment; the text's end if it is unterminated."""
    if opening[0] in ("/*", "{#"):
        return _comment_end(text, opening.end(), opening[0])
    quote = opening[0][-1]
    escapes = quote != "`" and opening[0][:-1].lower() != "r"
    position = opening.end()
    while position < len(text):
        if text[position] == "\\" and escapes:
            position += 2
        elif text[position] == quote:
            return position + 1
        else:
            position += 1
    return len(text)


def _comment_end(text: str, position: int, opening: str) -> int:
    closing = "*/" if opening == "/*" else "#}"
    depth = 1
    while depth and position < len(text):
        if text.startswith(closing, position):
            depth, position = depth - 1, position + 2
        elif text.startswith(opening, position):
            depth, position = depth + 1, position + 2
        else:
            position += 1
    return position


def _words(text: str, found: Sequence[SqlglotToken]) -> Iterator[Token]:
    index = 0
    last_start = -1
    while index < len(found):
        token = found[index]
        start, end = token.start - len(_GUARD), token.end + 1 - len(_GUARD)
        index += 1
        # 10L is a number, a cast and a type to sqlglot, all at the same offsets.
        if start == last_start:
            continue
        last_start = start
        raw = text[start:end]
        if token.token_type == TokenType.STRING and raw[:1] in ("'", '"'):
            # A doubled quote ends one string of sqlglot's and begins the next.
            while (
                index < len(found)
                and found[index].token_type == TokenType.STRING
                and found[index].start - len(_GUARD) == end
                and text[end] == raw[0]
            ):
                end = found[index].end + 1 - len(_GUARD)
                last_start = found[index].start - len(_GUARD)
                index += 1
            yield Token(Kind.STRING, _unescape(text[start:end]), start, end)
        elif token.token_type == TokenType.RAW_STRING:
            yield Token(Kind.STRING, raw[2:-1], start, end)
        elif raw.startswith("`"):
            yield Token(Kind.QUOTED, raw[1:-1].replace("``", "`"), start, end)
        elif token.token_type == TokenType.NUMBER:
            yield Token(Kind.NUMBER, raw, start, end)
        else:
            yield from _split(raw, start)


def _split(raw: str, start: int) -> Iterator[Token]:
    """Keywords of several words, such as ORDER BY, are one token of sqlglot's."""
    pieces = list(re.finditer(r"\S+", raw))
    for piece in pieces:
        kind = Kind.WORD if re.fullmatch(r"\w+", piece[0]) else Kind.SYMBOL
        yield Token(kind, piece[0], start + piece.start(), start + piece.end())


def _unescape(literal: str) -> str:
    """The value of a quoted string by Spark's rules, doubled quotes included."""
    quote = literal[0]

    def character(match: re.Match[str]) -> str:
        if match[0][0] != "\\":
            return match[0][0] if match[0][0] == quote else match[0]
        octal, short, long, single = match.groups()
        if octal is not None:
            return chr(int(octal, 8))
        if short is not None or long is not None:
            code = int(short or long, 16)
            return chr(code) if code <= 0x10FFFF else "\ufffd"
        # LIKE patterns need their backslash.
        return match[0] if single in "%_" else _ESCAPED.get(single, single)

    return _ESCAPE.sub(character, literal[1:-1])


def position_of(text: str, offset: int) -> TextPosition:
    """The line (from 1) and column (from 0) of an offset, as Spark counts them."""
    before = text[:offset]
    return TextPosition(before.count("\n") + 1, offset - (before.rfind("\n") + 1))


class TokenCursor:
    """Reads the tokens of one statement from left to right.

    `statement` names the statement in errors; the grammar sets it as soon as it knows. Every
    error that a cursor makes carries the position of the token that it is about. With `hides_text`
    set, no error shows what the statement says, nor a position, with which clients would show it.
    """

    __slots__ = ("_index", "_text", "_tokens", "hides_text", "statement")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._index = 0
        self.statement = "the statement"
        self.hides_text = False

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    @property
    def mark(self) -> int:
        return self._index

    def rewind(self, mark: int) -> None:
        self._index = mark

    def peek(self, distance: int = 1) -> Token:
        return self._tokens[min(self._index + distance, len(self._tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        if token.kind is not Kind.END:
            self._index += 1
        return token

    def looking_at(self, *words: str, ahead: int = 0) -> bool:
        return all(self.peek(ahead + i).is_word(word) for i, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Reads these keywords if they are next."""
        if not self.looking_at(*words):
            return False
        self._index += len(words)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        if not self.token.is_symbol(symbol):
            return False
        self._index += 1
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.syntax_error(" ".join(words))

    def expect_symbol(self, symbol: str) -> None:
        if not self.accept_symbol(symbol):
            raise self.syntax_error(symbol)

    def identifier(self, expected: str = "a name") -> str:
        token = self.token
        plain = token.kind is Kind.WORD and _IDENTIFIER.fullmatch(token.text)
        if not plain and (token.kind is not Kind.QUOTED or not token.text):
            raise self.syntax_error(expected)
        return self.advance().text

    def name(self, expected: str = "a name") -> QualifiedName:
        parts = [self.identifier(expected)]
        while self.accept_symbol("."):
            parts.append(self.identifier(expected))
        return QualifiedName(tuple(parts))

    def string(self, expected: str = "a string") -> str:
        if self.token.kind is not Kind.STRING:
            raise self.syntax_error(expected)
        return self.advance().text

    def identifiers(self) -> tuple[str, ...]:
        """A list of identifiers in parentheses."""
        self.expect_symbol("(")
        found = [self.identifier()]
        while self.accept_symbol(","):
            found.append(self.identifier())
        self.expect_symbol(")")
        return tuple(found)

    @property
    def at_end(self) -> bool:
        """Whether nothing follows but semicolons."""
        distance = 0
        while self.peek(distance).is_symbol(";"):
            distance += 1
        return self.peek(distance).kind is Kind.END

    def expect_end(self, expected: str = "the end of the statement") -> None:
        if not self.at_end:
            raise self.syntax_error(expected)

    def skip_group(self) -> None:
        """Reads over a token, or over everything up to the matching closing parenthesis."""
        depth = 0
        while True:
            token = self.token
            if token.kind is Kind.BROKEN:
                raise self.syntax_error("the end of this literal or comment")
            if token.kind is Kind.END or token.is_symbol(";"):
                raise self.syntax_error(")" if depth else "the end of the statement")
            if token.kind is Kind.SYMBOL:
                depth += (token.text in _OPENING) - (token.text in _CLOSING)
                if depth < 0:
                    raise self.syntax_error("an opening parenthesis before it")
            self.advance()
            if depth == 0:
                return

    def at(self, mark: int) -> Token:
        return self._tokens[mark]

    def slice(self, start: int, end: int | None = None) -> TextSlice:
        """The text from the token at mark `start` up to that at mark `end` or the cursor."""
        stop = self._index if end is None else end
        first = self._tokens[start]
        if start == stop:
            return TextSlice("", first.start)
        last = self._tokens[stop - 1]
        return TextSlice(self._text[first.start : last.end], first.start)

    def groups(self, stop: Callable[[], bool] | None = None) -> list[int]:
        """Reads on to the end, or to where `stop` holds outside of parentheses.

        Returns the marks at which what was read begins, a group in parentheses counting as one.
        """
        marks: list[int] = []
        while not self.at_end and not (stop is not None and stop()):
            marks.append(self._index)
            self.skip_group()
        return marks

    def inside(self, expected: str) -> TextSlice | None:
        """The text between the parentheses that are next, which is not empty; None: none are."""
        if not self.token.is_symbol("("):
            return None
        start = self.mark
        self.skip_group()
        if self.mark == start + 2:
            raise self.syntax_error(expected, self.at(start + 1))
        return self.slice(start + 1, self.mark - 1)

    def rest(self, expected: str, stop: Callable[[], bool] | None = None) -> TextSlice:
        """The text up to the end, or to where `stop` holds; it must be something."""
        start = self._index
        if not self.groups(stop):
            raise self.syntax_error(expected)
        return self.slice(start)

    def syntax_error(self, expected: str, at: Token | None = None) -> SlackwaterError:
        token = at or self.token
        shown = "" if self.hides_text else self._text[token.start : token.end]
        return user_error(
            "SLACKWATER_SYNTAX_ERROR",
            position=self.position(token),
            statement=self.statement,
            found=_shorten(shown) if shown else token.kind.value,
            expected=expected,
        )

    def error(self, condition: str, at: Token, **parameters: str) -> SlackwaterError:
        return user_error(condition, position=self.position(at), **parameters)

    def unsupported(self, feature: str, advice: str, at: Token | None = None) -> SlackwaterError:
        return user_error(
            "SLACKWATER_UNSUPPORTED",
            position=self.position(at or self.token),
            feature=feature,
            advice=advice,
        )

    def position(self, token: Token) -> TextPosition | None:
        return None if self.hides_text else position_of(self._text, token.start)


def _shorten(text: str, length: int = 40) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
