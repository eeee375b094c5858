package org.apache.spark.sql.slackwater.parser

import java.util.Locale

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.command.{CreateViewCommand, ExplainCommand}
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.lexer.{Lexer, Token}

/** A statement that seems to end in `AS OF [AT LEAST] time`.
  *
  * @param prefix
  *   the statement without it, at the positions that it has in the whole text
  */
final case class AsOfClause(prefix: String, time: String, atLeast: Boolean) {

  /** The clause as it was written, to be put behind a stored query text. */
  def text: String = s" AS OF ${if (atLeast) "AT LEAST " else ""}$time"

  /** The plan of the prefix, with its query read at `time`; None where it has no query. */
  def place(plan: LogicalPlan, time: Expression): Option[LogicalPlan] = plan match {
    case explain: ExplainCommand =>
      place(explain.logicalPlan, time).map(inner => explain.copy(logicalPlan = inner))
    case create: CreateTableAsSelect   => Some(create.copy(query = at(create.query, time)))
    case replace: ReplaceTableAsSelect => Some(replace.copy(query = at(replace.query, time)))
    case insert: InsertIntoStatement   => Some(insert.copy(query = at(insert.query, time)))
    case insert: InsertIntoDir         => Some(insert.copy(child = at(insert.child, time)))
    case view: CreateViewCommand       =>
      Some(view.copy(plan = at(view.plan, time), originalText = stored(view.originalText)))
    case view: CreateView =>
      Some(view.copy(query = at(view.query, time), originalText = stored(view.originalText)))
    case cache: CacheTableAsSelect =>
      Some(cache.copy(plan = at(cache.plan, time), originalText = cache.originalText + text))
    case ctes: UnresolvedWith if isStatement(ctes.child) => placeBelowCtes(ctes, time)
    case statement if isStatement(statement)             => None
    case query                                           => Some(at(query, time))
  }

  private def at(query: LogicalPlan, time: Expression): AsOf = AsOf(query, time, atLeast)

  private def stored(query: Option[String]): Option[String] = query.map(_ + text)

  /** The names of a statement's WITH are part of its query: they are read at the same time. */
  private def placeBelowCtes(ctes: UnresolvedWith, time: Expression): Option[LogicalPlan] =
    place(ctes.child, time).map { statement =>
      ctes.copy(
        child = statement,
        cteRelations = ctes.cteRelations.map { case (name, alias, depth) =>
          (name, alias.copy(child = at(alias.child, time)), depth)
        }
      )
    }

  private def isStatement(plan: LogicalPlan): Boolean = plan match {
    case _: Command | _: ParsedStatement | _: InsertIntoDir | _: CompoundBody => true
    case union: Union => union.children.exists(isStatement)
    case _            => false
  }
}

object AsOfClause {

  /** Words after which `AS OF` is Spark's own time travel of one table. */
  private val ofOneTable = Set("TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION")

  /** Words that go on after an alias `of`, and begin no expression. */
  private val clauses = Set(
    "CROSS",
    "EXCEPT",
    "FETCH",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "INNER",
    "INTERSECT",
    "JOIN",
    "LATERAL",
    "LEFT",
    "LIMIT",
    "MINUS",
    "NATURAL",
    "OFFSET",
    "ON",
    "ORDER",
    "RIGHT",
    "UNION",
    "WHERE",
    "WINDOW"
  )

  /** The last `AS OF` of `text` outside of parentheses that has something behind it. */
  def find(text: String): Option[AsOfClause] =
    if (!mayHave(text)) None
    else {
      val tokens = StatementClassifier.withoutSemicolons(Lexer.tokens(text))
      val index = (tokens.size - 3 to 1 by -1).find(i => isAsOf(tokens, i))
      index.map(cut(text, tokens, _))
    }

  private def isAsOf(tokens: IndexedSeq[Token], index: Int): Boolean =
    tokens(index).depth == 0 && tokens(index).is("AS") && tokens(index + 1).is("OF") &&
      !ofOneTable(tokens(index - 1).image.toUpperCase(Locale.ROOT)) && !tokens(index + 2).isSymbol(
        ','
      ) &&
      !clauses(tokens(index + 2).image.toUpperCase(Locale.ROOT))

  private def cut(text: String, tokens: IndexedSeq[Token], index: Int): AsOfClause = {
    val rest = index + 2
    val atLeast =
      rest + 2 < tokens.size && tokens(rest).is("AT") && tokens(rest + 1).is("LEAST")
    val time = text.substring(tokens(if (atLeast) rest + 2 else rest).start, tokens.last.end)
    AsOfClause(text.substring(0, tokens(index - 1).end), time, atLeast)
  }

  /** Spares nearly every statement the lexer: no word `of`, no clause. */
  private def mayHave(text: String): Boolean = wordOf.findFirstIn(text).isDefined

  private val wordOf = """(?i)[^\p{L}\p{Nd}]of""".r
}
