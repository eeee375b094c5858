package org.apache.spark.sql.slackwater.hold

/** How rows of collections are read under a hold, as it comes out while a plan runs: an index that
  * was to be asked may not have them any more. Thread-safe.
  */
private[slackwater] final class ReadStrategy {
  import ReadStrategy._

  @volatile private var ran, indexed, other = false

  /** A plan over what was bound runs. */
  def begin(): Unit = ran = true

  /** Rows came from an index in memory. */
  def byIndex(): Unit = indexed = true

  /** Rows come from anywhere else. */
  def otherwise(): Unit = other = true

  /** As the protocol has it; None: nothing has run. */
  def name: Option[String] = Option.when(ran) {
    if (other) Standard else if (indexed) FastPath else Constant
  }
}

private[slackwater] object ReadStrategy {
  private val Standard = "standard"
  private val FastPath = "fast-path"
  private val Constant = "constant"
}
