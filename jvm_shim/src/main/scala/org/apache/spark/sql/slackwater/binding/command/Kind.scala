package org.apache.spark.sql.slackwater.binding.command

import java.util.Locale

/** What a collection is, in the place where Spark knows managed and external tables only. */
private[command] object Kind {
  val managed = "MANAGED"

  def of(kind: String): String =
    if (kind == "table") managed else kind.replace('-', ' ').toUpperCase(Locale.ROOT)
}
