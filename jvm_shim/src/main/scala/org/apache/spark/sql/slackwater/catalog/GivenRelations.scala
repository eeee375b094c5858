package org.apache.spark.sql.slackwater.catalog

import scala.jdk.CollectionConverters._

import com.ibm.icu.lang.UCharacter

import org.apache.spark.sql.slackwater.protocol.{Json, ObjectDescription}

/** The relations that names mean while a query is analyzed, whatever the catalog has meanwhile. */
private[slackwater] final class GivenRelations private (relations: Seq[ObjectDescription]) {

  private val byName =
    relations.map(each => GivenRelations.key(each.schemaName, each.name) -> each).toMap

  /** The relation of that name; None: the query has no such name. */
  def find(namespace: String, name: String): Option[ObjectDescription] =
    byName.get(GivenRelations.key(namespace, name))
}

object GivenRelations {

  /** Names are compared in the form in which the coordinator compares them. */
  private def key(names: String*): Seq[String] = names.map(UCharacter.foldCase(_, true))

  private val open = new ThreadLocal[GivenRelations]

  /** Those that this thread goes by; None: by the catalog. */
  def current: Option[GivenRelations] = Option(open.get)

  /** Runs `body`, in which the catalog has these relations and all schemas, and asks nobody. */
  private[slackwater] def within[A](relations: GivenRelations)(body: => A): A = {
    open.set(relations)
    try body
    finally open.remove()
  }

  /** A list of objects of the protocol. */
  private[slackwater] def read(json: String): GivenRelations =
    new GivenRelations(Json.mapper.readTree(json).asScala.map(Json.objectDescription).toSeq)
}
