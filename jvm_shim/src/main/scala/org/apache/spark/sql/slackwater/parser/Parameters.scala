package org.apache.spark.sql.slackwater.parser

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser._
import org.apache.spark.sql.slackwater.lexer.{Lexer, Token, TokenKind}

/** The values of a parameterised statement, for texts that are parsed in two pieces. */
private object Parameters {

  def nonEmpty(context: ParameterContext): Boolean = context match {
    case named: NamedParameterContext           => named.params.nonEmpty
    case positional: PositionalParameterContext => positional.params.nonEmpty
    case hybrid: HybridParameterContext         => hybrid.args.nonEmpty
  }

  /** What the text `prefix` takes, and what is left for the text behind it. */
  def split(context: ParameterContext, prefix: String): (ParameterContext, ParameterContext) = {
    val count = Lexer.tokens(prefix).count(_.isSymbol('?'))
    context match {
      case positional: PositionalParameterContext =>
        val (before, behind) = positional.params.splitAt(count)
        (PositionalParameterContext(before), PositionalParameterContext(behind))
      case hybrid: HybridParameterContext if hybrid.paramNames.forall(_.isEmpty) =>
        val (before, behind) = hybrid.args.splitAt(count)
        (
          HybridParameterContext(before, hybrid.paramNames.take(count)),
          HybridParameterContext(behind, hybrid.paramNames.drop(count))
        )
      case other => (other, other)
    }
  }

  /** `text` with its markers replaced by the literals that they stand for. */
  def bound(text: String, context: ParameterContext): String = {
    val tokens = Lexer.tokens(text)
    val result = new java.lang.StringBuilder
    var copied = 0
    var next = 0
    for (index <- tokens.indices) {
      val token = tokens(index)
      val replaced: Option[(Int, Expression)] =
        if (token.isSymbol('?')) positional(context, next).map { value =>
          next += 1
          (token.end, value)
        }
        else if (token.isSymbol(':') && isMarker(tokens, index))
          named(context, tokens(index + 1).name).map((tokens(index + 1).end, _))
        else None
      replaced.foreach { case (end, value) =>
        result.append(text, copied, token.start).append(value.sql)
        copied = end
      }
    }
    result.append(text, copied, text.length).toString
  }

  /** `:name`, but not the second colon of a cast nor a path into a variant. */
  private def isMarker(tokens: IndexedSeq[Token], index: Int): Boolean = {
    val follows = index + 1 < tokens.size && tokens(index + 1).kind == TokenKind.Word &&
      tokens(index + 1).start == tokens(index).end
    val precedes = index == 0 || {
      val previous = tokens(index - 1)
      previous.end < tokens(index).start || (previous.kind == TokenKind.Symbol &&
        !previous.isSymbol(':') && !previous.isSymbol(')') && !previous.isSymbol(']'))
    }
    follows && precedes
  }

  private def positional(context: ParameterContext, index: Int): Option[Expression] =
    context match {
      case PositionalParameterContext(values) => values.lift(index)
      case HybridParameterContext(values, _)  => values.lift(index)
      case _                                  => None
    }

  private def named(context: ParameterContext, name: String): Option[Expression] = context match {
    case NamedParameterContext(values)         => values.get(name)
    case HybridParameterContext(values, names) =>
      Some(names.indexOf(name)).filter(_ >= 0).flatMap(values.lift)
    case _ => None
  }
}
