package org.apache.spark.sql.slackwater.write

/** How a write changes the table. */
private[slackwater] sealed abstract class WriteMode(val name: String)

private[slackwater] object WriteMode {
  case object Append extends WriteMode("append")
  case object Overwrite extends WriteMode("overwrite")
  case object Diff extends WriteMode("diff")
}

/** A table that an INSERT writes, and how. */
private[slackwater] final case class Target(table: WriteTarget, mode: WriteMode) {
  override def toString: String = s"${mode.name} ${table.name}"
}
