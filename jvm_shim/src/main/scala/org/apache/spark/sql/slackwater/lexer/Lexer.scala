package org.apache.spark.sql.slackwater.lexer

import java.util.Locale

/** What a token is: a bare word, a back-quoted name, a string, or anything else. */
sealed trait TokenKind
object TokenKind {
  case object Word extends TokenKind
  case object Quoted extends TokenKind
  case object Text extends TokenKind
  case object Number extends TokenKind
  case object Symbol extends TokenKind
}

/** One token: `[start, end)` of the statement's text. `depth` counts the open parentheses around it. */
final case class Token(kind: TokenKind, start: Int, end: Int, depth: Int, image: String) {

  /** Whether this is the bare word `upper`, in any case. */
  def is(upper: String): Boolean = kind == TokenKind.Word && image.equalsIgnoreCase(upper)
  def isSymbol(symbol: Char): Boolean =
    kind == TokenKind.Symbol && image.length == 1 && image.charAt(0) == symbol
  def isName: Boolean = kind == TokenKind.Word || kind == TokenKind.Quoted

  /** The identifier that the token writes. */
  def name: String =
    if (kind == TokenKind.Quoted) image.substring(1, image.length - 1).replace("``", "`") else image
}

/** Cuts SQL text into tokens the way Spark's lexer does, in one pass over the text. */
object Lexer {

  def tokens(text: String): IndexedSeq[Token] = all(new Lexer(text))

  /** The first `count` tokens, without reading the rest of the text. */
  def first(text: String, count: Int): IndexedSeq[Token] = all(new Lexer(text).take(count))

  /** What may be a name in the text, in lower case. */
  def names(text: String): Set[String] =
    tokens(text).filter(_.isName).map(_.name.toLowerCase(Locale.ROOT)).toSet

  private def all(lexer: Iterator[Token]): IndexedSeq[Token] = lexer.toIndexedSeq
}

private final class Lexer(text: String) extends Iterator[Token] {
  private val limit = text.length
  private var position = 0
  private var depth = 0
  private var upcoming: Option[Token] = read()

  override def hasNext: Boolean = upcoming.isDefined

  override def next(): Token = {
    val token = upcoming.getOrElse(throw new NoSuchElementException)
    upcoming = read()
    token
  }

  private def read(): Option[Token] = {
    skipBlanks()
    if (position >= limit) None else Some(token())
  }

  private def token(): Token = {
    val start = position
    val char = text.charAt(start)
    if (isRawPrefix(char) && isQuote(start + 1)) {
      position = rawEnd(start + 1)
      make(TokenKind.Text, start)
    } else if (isWordPart(char)) {
      while (position < limit && isWordPart(text.charAt(position))) position += 1
      make(if (Character.isDigit(char)) TokenKind.Number else TokenKind.Word, start)
    } else if (isQuote(start)) {
      position = stringEnd(start)
      make(TokenKind.Text, start)
    } else if (char == '`') {
      position = backquotedEnd(start)
      make(TokenKind.Quoted, start)
    } else {
      position += 1
      symbol(char, start)
    }
  }

  /** A parenthesis has the depth of what it stands in, not of what it encloses. */
  private def symbol(char: Char, start: Int): Token = {
    if (char == ')' || char == ']' || char == '}') depth -= 1
    val token = make(TokenKind.Symbol, start)
    if (char == '(' || char == '[' || char == '{') depth += 1
    token
  }

  private def make(kind: TokenKind, start: Int): Token =
    Token(kind, start, position, depth, text.substring(start, position))

  private def isRawPrefix(char: Char): Boolean = char == 'r' || char == 'R'

  private def isQuote(at: Int): Boolean =
    at < limit && (text.charAt(at) == '\'' || text.charAt(at) == '"')

  private def isWordPart(char: Char): Boolean = Character.isLetterOrDigit(char) || char == '_'

  private def skipBlanks(): Unit = {
    var more = true
    while (more && position < limit) {
      if (isBlank(text.charAt(position))) position += 1
      else if (text.startsWith("--", position)) skipLine()
      else if (text.startsWith("/*", position)) skipComment()
      else more = false
    }
  }

  /** Other signs of Unicode that Spark takes for white space too. */
  private def isBlank(char: Char): Boolean =
    Character.isWhitespace(char) || Character.isSpaceChar(char) || char == '\uFEFF'

  /** A backslash before the line's end continues the comment, as in Spark. */
  private def skipLine(): Unit = {
    while (position < limit && !isLineEnd(position)) {
      position += (if (text.startsWith("\\\n", position)) 2 else 1)
    }
  }

  private def isLineEnd(at: Int): Boolean = text.charAt(at) == '\n' || text.charAt(at) == '\r'

  private def skipComment(): Unit = {
    var nesting = 0
    do {
      if (text.startsWith("/*", position)) {
        nesting += 1
        position += 2
      } else if (text.startsWith("*/", position)) {
        nesting -= 1
        position += 2
      } else position += 1
    } while (nesting > 0 && position < limit)
    position = math.min(position, limit)
  }

  private def stringEnd(start: Int): Int = {
    val quote = text.charAt(start)
    var at = start + 1
    while (at < limit && text.charAt(at) != quote) {
      at += (if (text.charAt(at) == '\\') 2 else 1)
    }
    math.min(at + 1, limit)
  }

  private def rawEnd(start: Int): Int = {
    val end = text.indexOf(text.charAt(start).toInt, start + 1)
    if (end < 0) limit else end + 1
  }

  private def backquotedEnd(start: Int): Int = {
    var end = text.indexOf('`', start + 1)
    while (end >= 0 && end + 1 < limit && text.charAt(end + 1) == '`') {
      end = text.indexOf('`', end + 2)
    }
    if (end < 0) limit else end + 1
  }
}
