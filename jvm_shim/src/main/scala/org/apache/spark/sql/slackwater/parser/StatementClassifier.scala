package org.apache.spark.sql.slackwater.parser

import java.util.Locale

import org.apache.spark.sql.slackwater.lexer.{Lexer, Token, TokenKind}
import org.apache.spark.sql.slackwater.process.SparkSessions

/** Decides from a statement's words whether it may be the coordinator's.
  *
  * That is a question, not a verdict: the coordinator may hand the statement back to Spark. What may
  * not be the coordinator's is Spark's, and nothing of ours is started for it.
  *
  * @param inSlackwater
  *   whether the session's current catalog is ours
  * @param isCatalog
  *   whether a name is that of a catalog of the session
  */
final class StatementClassifier(inSlackwater: => Boolean, isCatalog: String => Boolean) {
  import StatementClassifier._
  import SparkSessions.catalogName

  def mayBeOurs(text: String): Boolean =
    Lexer.first(text, 1).headOption.exists(word => starts(word.image.toUpperCase(Locale.ROOT))) && {
      val words = Words(withoutSemicolons(Lexer.tokens(text)))
      words.first match {
        case "CREATE"                                            => create(words.drop(1))
        case "DROP"                                              => drop(words.drop(1))
        case "ALTER"                                             => alter(words.drop(1))
        case "SHOW"                                              => show(words.drop(1))
        case "SET"                                               => set(words.drop(1))
        case "RESET"                                             => variable(words.drop(1))
        case "EXPLAIN"                                           => explain(words.drop(1))
        case "COMMENT"                                           => comment(words.drop(1))
        case "DECLARE"                                           => words.at(2) == "CURSOR"
        case "SUBSCRIBE"                                         => words.size > 1
        case "REFRESH"                                           => refresh(words.drop(1))
        case "FETCH" | "CLOSE"                                   => words.size > 1
        case "VALIDATE"                                          => words.at(1) == "CONNECTION"
        case "BEGIN" | "START" | "COMMIT" | "ROLLBACK" | "ABORT" => transaction(words)
        case _                                                   => false
      }
    }

  /** Spark takes the rest for the path of a file. */
  private def refresh(words: Words): Boolean = words.first match {
    case "MATERIALIZED"    => words.at(1) == "VIEW" && isOurs(words.drop(2))
    case "SOURCE" | "SINK" => isOurs(words.drop(1))
    case _                 => false
  }

  private def create(words: Words): Boolean = {
    val rest = words.skip("OR", "REPLACE")
    rest.first match {
      case "MATERIALIZED" =>
        rest.at(1) == "VIEW" && isOurs(rest.drop(2).skip("IF", "NOT", "EXISTS"))
      case "REPLACEMENT" =>
        rest.at(1) == "MATERIALIZED" && rest.at(2) == "VIEW" && isOurs(rest.drop(3))
      case "SOURCE" | "SINK" | "CLUSTER" | "CONNECTION" | "SECRET" => rest.size > 1
      case "DEFAULT"                                               => rest.at(1) == "INDEX"
      case "INDEX"    => isOurs(rest.after("ON").skip("TABLE"))
      case "TABLE"    => createTable(rest.drop(1).skip("IF", "NOT", "EXISTS"))
      case "VIEW"     => createView(rest.drop(1).skip("IF", "NOT", "EXISTS"))
      case "FUNCTION" => isOurs(rest.drop(1).skip("IF", "NOT", "EXISTS"))
      case _          => false
    }
  }

  /** Spark's own CREATE TABLE does the rest; it has no options WITH (...) and knows no sources. */
  private def createTable(words: Words): Boolean = {
    val definition = words.before("AS")
    val special = definition.hasPair("WITH", "(") || definition.hasPair("FROM", "SOURCE") ||
      definition.hasPair("FROM", "WEBHOOK")
    special && isOurs(words)
  }

  private def createView(words: Words): Boolean =
    words.before("AS").hasPair("WITH", "(") && isOurs(words)

  private def drop(words: Words): Boolean = words.first match {
    case "MATERIALIZED" => words.at(1) == "VIEW" && anyIsOurs(words.drop(2).skip("IF", "EXISTS"))
    case "SOURCE" | "SINK" | "CLUSTER" | "CONNECTION" | "SECRET" => words.size > 1
    case "INDEX"          => words.size > 1 && words.after("ON").isEmpty
    case "TABLE" | "VIEW" =>
      val names = words.drop(1).skip("IF", "EXISTS")
      (names.endsWith("CASCADE", "RESTRICT") || names.hasComma) && anyIsOurs(names)
    case "SCHEMA" | "DATABASE" =>
      val names = words.drop(1).skip("IF", "EXISTS")
      names.hasComma && schemaIsOurs(names)
    case _ => false
  }

  private def alter(words: Words): Boolean = words.first match {
    case "MATERIALIZED" => words.at(1) == "VIEW" && isOurs(words.drop(2).skip("IF", "EXISTS"))
    case "SOURCE" | "SINK" | "INDEX" | "CLUSTER" | "CONNECTION" | "SECRET" | "SYSTEM" =>
      words.size > 1
    case "TABLE" | "VIEW" =>
      val names = words.drop(1).skip("IF", "EXISTS")
      alterIsOurs(names.drop(names.nameLength)) && isOurs(names)
    case "SCHEMA" | "DATABASE" =>
      val names = words.drop(1).skip("IF", "EXISTS")
      Set("RENAME", "SWAP")(names.drop(names.nameLength).first) && schemaIsOurs(names)
    case _ => false
  }

  private def alterIsOurs(action: Words): Boolean = action.first match {
    case "SWAP"          => action.at(1) == "WITH"
    case "SET" | "RESET" => action.at(1) == "("
    case _               => false
  }

  private def show(words: Words): Boolean = words.first match {
    case kind if shownKinds(kind) => true
    case "MATERIALIZED"           => words.at(1) == "VIEWS"
    case "CLUSTER"                => words.size == 1 && inSlackwater || words.at(1) == "REPLICAS"
    case "INDEXES"                => inSlackwater || isOurs(words.after("FROM"))
    case "CREATE"                 => showCreate(words.drop(1))
    case "ALL"                    => words.size == 1 && inSlackwater
    case "TRANSACTION"            => words.at(1) == "ISOLATION"
    case _                        => variable(words)
  }

  private def showCreate(words: Words): Boolean = words.first match {
    case "SOURCE" | "SINK" | "INDEX" | "CLUSTER" | "CONNECTION" | "SECRET" => words.size > 1
    case "MATERIALIZED" => words.at(1) == "VIEW" && isOurs(words.drop(2))
    case "VIEW"         => isOurs(words.drop(1))
    case "TABLE"        => isOurs(words.drop(1)) && !words.hasPair("AS", "SERDE")
    case _              => false
  }

  private def set(words: Words): Boolean = words.first match {
    case "SESSION" if words.at(1) == "CHARACTERISTICS" => true
    case "SESSION" | "LOCAL"                           => setsVariable(words.drop(1))
    case "TRANSACTION"                                 => Set("ISOLATION", "READ")(words.at(1))
    case _                                             => setsVariable(words)
  }

  private def setsVariable(words: Words): Boolean = variable(words) && {
    val assignment = words.drop(words.nameLength)
    assignment.isEmpty || assignment.first == "=" || assignment.first == "TO"
  }

  /** A variable's bare name is ours only in our catalog: elsewhere `SET cluster = x` is Spark's. */
  private def variable(words: Words): Boolean = words.name match {
    case head +: _ +: _ => head.equalsIgnoreCase(catalogName)
    case Seq(single)    => variables(single.toLowerCase(Locale.ROOT)) && inSlackwater
    case _              => false
  }

  private def explain(words: Words): Boolean = words.first match {
    case "TIMESTAMP"    => words.at(1) == "AS" || words.at(1) == "FOR"
    case "INCREMENTAL"  => words.size > 1
    case "ANALYZE"      => words.at(1) == "FOR" || words.at(1) == "MATERIALIZED"
    case "MATERIALIZED" => words.at(1) == "VIEW" && isOurs(words.drop(2))
    case "FILTER"       => words.at(1) == "PUSHDOWN"
    case _              => words.upTo(3).contains("PLAN") && words.after("FOR").nonEmpty
  }

  private def comment(words: Words): Boolean = words.first == "ON" && (words.at(1) match {
    case "SOURCE" | "SINK" | "INDEX" | "CLUSTER" | "CONNECTION" | "SECRET" => true
    case "MATERIALIZED" => words.at(2) == "VIEW" && isOurs(words.drop(3))
    case "VIEW"         => isOurs(words.drop(2))
    case "COLUMN"       => isOurs(words.drop(2))
    case _              => false
  })

  /** `BEGIN ... END` is a script of Spark's: only a statement that says nothing else is ours. */
  private def transaction(words: Words): Boolean = {
    val more = words.drop(1)
    val whole = words.first match {
      case "BEGIN" => more.isEmpty || Set("TRANSACTION", "WORK", "ISOLATION", "READ")(more.first)
      case "START" => more.first == "TRANSACTION"
      case _       => more.isEmpty || Set("TRANSACTION", "WORK", "AND")(more.first)
    }
    whole && !words.hasAny(";")
  }

  private def isOurs(words: Words): Boolean = words.name match {
    case Seq()     => false
    case Seq(_)    => inSlackwater
    case head +: _ => head.equalsIgnoreCase(catalogName) || (inSlackwater && !isCatalog(head))
  }

  private def schemaIsOurs(words: Words): Boolean = words.names.exists {
    case Seq(_)    => inSlackwater
    case head +: _ => head.equalsIgnoreCase(catalogName)
    case _         => false
  }

  private def anyIsOurs(words: Words): Boolean =
    words.nameStarts.exists(start => isOurs(words.drop(start)))
}

object StatementClassifier {

  /** `COMMIT` or `ROLLBACK` with nothing behind it that could mean more. */
  private[parser] def endsBlock(text: String): Boolean = {
    val words = Words(withoutSemicolons(Lexer.tokens(text)))
    Set("COMMIT", "ROLLBACK", "ABORT")(words.first) &&
    words.drop(1).skip("TRANSACTION").skip("WORK").isEmpty
  }
  private val starts = Set(
    "CREATE",
    "DROP",
    "ALTER",
    "SHOW",
    "SET",
    "RESET",
    "EXPLAIN",
    "COMMENT",
    "DECLARE",
    "SUBSCRIBE",
    "FETCH",
    "CLOSE",
    "BEGIN",
    "START",
    "COMMIT",
    "ROLLBACK",
    "ABORT",
    "REFRESH",
    "VALIDATE"
  )

  private val shownKinds = Set(
    "SOURCES",
    "SINKS",
    "CLUSTERS",
    "OBJECTS",
    "NOTICES",
    "CONNECTIONS",
    "SECRETS",
    "SUBSOURCES"
  )

  /** Those of the coordinator's `KNOWN_NAMES` and `PARAMETERS`; a unit test compares them. */
  private val variables = Set(
    "application_name",
    "auto_route_catalog_queries",
    "client_encoding",
    "client_min_messages",
    "cluster",
    "cluster_replica",
    "compute_hydration_concurrency",
    "current_object_missing_warnings",
    "database",
    "datestyle",
    "default_retain_history",
    "default_timestamp_interval",
    "emit_introspection_query_notice",
    "emit_plan_insights_notice",
    "emit_timestamp_notice",
    "emit_trace_id_notice",
    "enable_session_rbac_checks",
    "enable_storage_shard_finalization",
    "extra_float_digits",
    "group_commit_max_waiting_bytes",
    "idle_in_transaction_session_timeout",
    "is_superuser",
    "keep_n_source_status_history_entries",
    "max_identifier_length",
    "max_query_result_size",
    "mz_version",
    "persist_blob_target_size",
    "persist_compaction_memory_bound_bytes",
    "persist_inline_writes_single_max_bytes",
    "persist_inline_writes_total_max_bytes",
    "persist_reader_lease_duration",
    "real_time_recency",
    "real_time_recency_timeout",
    "search_path",
    "server_version",
    "sql_safe_updates",
    "statement_logging_sample_rate",
    "statement_logging_target_data_rate",
    "statement_timeout",
    "timezone",
    "transaction_isolation",
    "welcome_message"
  )

  def withoutSemicolons(tokens: IndexedSeq[Token]): IndexedSeq[Token] =
    tokens.take(tokens.lastIndexWhere(!_.isSymbol(';')) + 1)
}

/** A statement's tokens, read from the left. */
private final case class Words(tokens: IndexedSeq[Token]) {
  def size: Int = tokens.size
  def isEmpty: Boolean = tokens.isEmpty
  def nonEmpty: Boolean = tokens.nonEmpty
  def at(index: Int): String =
    if (index < size && tokens(index).kind != TokenKind.Quoted)
      tokens(index).image.toUpperCase(Locale.ROOT)
    else ""
  def first: String = at(0)
  def drop(count: Int): Words = Words(tokens.drop(count))
  def upTo(count: Int): Seq[String] = tokens.take(count).map(_.image.toUpperCase(Locale.ROOT))

  /** Without these words, if they come first. */
  def skip(expected: String*): Words =
    if (expected.indices.forall(index => at(index) == expected(index))) drop(expected.size)
    else this

  /** What follows the first `word` outside of parentheses; nothing when there is none. */
  def after(word: String): Words = {
    val index = tokens.indexWhere(token => token.depth == 0 && token.is(word))
    Words(if (index < 0) IndexedSeq.empty else tokens.drop(index + 1))
  }

  def before(word: String): Words =
    Words(tokens.takeWhile(token => token.depth > 0 || !token.is(word)))

  def hasPair(word: String, next: String): Boolean =
    tokens.indices.exists(i => tokens(i).depth == 0 && tokens(i).is(word) && at(i + 1) == next)

  def hasComma: Boolean = tokens.exists(token => token.depth == 0 && token.isSymbol(','))
  def hasAny(image: String): Boolean = tokens.exists(_.image == image)
  def endsWith(choices: String*): Boolean = size > 1 && choices.contains(at(size - 1))

  /** How many tokens the dotted name at the beginning has. */
  def nameLength: Int = {
    var length = 0
    while (
      length < size && tokens(length).isName &&
      length + 2 < size && tokens(length + 1).isSymbol('.')
    ) length += 2
    if (length < size && tokens(length).isName) length + 1 else 0
  }

  def name: Seq[String] = tokens.take(nameLength).filter(_.isName).map(_.name)

  def nameStarts: Seq[Int] =
    0 +: tokens.indices.filter(i => tokens(i).depth == 0 && tokens(i).isSymbol(',')).map(_ + 1)

  def names: Seq[Seq[String]] = nameStarts.map(start => drop(start).name)
}
