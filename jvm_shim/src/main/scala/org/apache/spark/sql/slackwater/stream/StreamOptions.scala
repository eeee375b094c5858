package org.apache.spark.sql.slackwater.stream

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.protocol.DataErrors

/** The options of `readStream`, with the meaning that they have in SUBSCRIBE.
  *
  * @param changes
  *   whether rows come as changes, with `mz_timestamp` and `mz_diff`; else the inserted ones alone
  * @param snapshot
  *   whether it begins with the contents
  * @param asOf
  *   where it begins, in ms; None: now
  */
private[stream] final case class StreamOptions(
    changes: Boolean,
    snapshot: Boolean,
    asOf: Option[Long]
)

private[stream] object StreamOptions {
  private val changes = "changes"
  private val snapshot = "snapshot"
  private val asOf = "asOf"
  private val known = Seq(changes, snapshot, asOf)

  /** Raises SLACKWATER_UNKNOWN_OPTION, SLACKWATER_INVALID_OPTION, SLACKWATER_INVALID_AS_OF. */
  def of(name: String, texts: java.util.Map[String, String]): StreamOptions = {
    val statement = s"readStream of $name"
    val options = texts.asScala.map { case (key, value) => lower(key) -> value.trim }.toMap
    options.keys.find(key => !known.exists(lower(_) == key)).foreach { key =>
      throw DataErrors.unknownOption(statement, key, known)
    }
    def flag(key: String, usual: Boolean): Boolean =
      options.get(lower(key)).fold(usual) { text =>
        lower(text).toBooleanOption.getOrElse {
          throw DataErrors.invalidOption(statement, key, text, "it is true or false")
        }
      }
    StreamOptions(
      flag(changes, usual = false),
      flag(snapshot, usual = true),
      options.get(lower(asOf)).map(text => AsOf.evaluate(Literal(text)))
    )
  }

  private def lower(text: String): String = text.toLowerCase(Locale.ROOT)
}
