package org.apache.spark.sql.slackwater.binding

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.slackwater.protocol.Json

/** The time that a statement asks for. */
private[slackwater] final case class ReadTime(milliseconds: Long, atLeast: Boolean) {
  def toJson: ObjectNode =
    Json.obj().put(if (atLeast) "at_least" else "at", milliseconds)
}
