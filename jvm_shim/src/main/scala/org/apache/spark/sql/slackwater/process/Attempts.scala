package org.apache.spark.sql.slackwater.process

/** How often one call is tried: with so many coordinators, and over so many connections to each.
  *
  * They are counted apart: a coordinator that is killed breaks all its connections at once, and a
  * call that meets some of them has still met one coordinator only.
  */
private[process] final class Attempts {
  import Attempts.limit

  private var coordinators = 0
  private var connections = 0

  /** Notes a coordinator that has gone; whether the next one is tried. */
  def lost(): Boolean = {
    coordinators += 1
    connections = 0
    coordinators < limit
  }

  /** Notes a connection that broke; whether another one to that coordinator is tried. */
  def broke(): Boolean = {
    connections += 1
    connections < limit
  }

  /** Whether no other connection to that coordinator would be tried when this one breaks. */
  def isLastConnection: Boolean = connections == limit - 1
}

private[process] object Attempts {
  val limit = 4
}
