package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.slackwater.protocol.Errors

/** A collection says that there are fewer than no rows: it was not computed from what it holds. */
private[slackwater] object NegativeMultiplicity {
  def apply(what: String): Throwable = Errors.user(
    "SLACKWATER_INTERNAL",
    "reason" -> s"$what has a negative multiplicity",
    "log" -> "of the application"
  )
}
