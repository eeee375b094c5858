package org.apache.spark.sql.slackwater.scan.execution

import org.apache.spark.sql.catalyst.InternalRow

/** What the slots of the plan that this thread is running hold. */
private[slackwater] object Slots {
  private val filled = new ThreadLocal[scala.collection.Map[String, () => Iterator[InternalRow]]]

  def rows(name: String): Iterator[InternalRow] = filled.get()(name)()

  def within[A](rows: scala.collection.Map[String, () => Iterator[InternalRow]])(body: => A): A = {
    val outer = filled.get
    filled.set(rows)
    try body
    finally if (outer == null) filled.remove() else filled.set(outer)
  }
}
