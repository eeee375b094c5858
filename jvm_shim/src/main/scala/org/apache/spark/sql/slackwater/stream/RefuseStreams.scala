package org.apache.spark.sql.slackwater.stream

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.{StreamingRelationV2, WriteToStream}
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.catalog.CollectionChangelog
import org.apache.spark.sql.slackwater.protocol.DataErrors

/** Refuses streams into collections before they start, and streams by the clause CHANGES. */
object RefuseStreams extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case StreamingRelationV2(_, _, CollectionChangelog(changes), _, _, _, _, _, _) =>
      throw DataErrors.unsupported(
        s"A stream of ${changes.name} by CHANGES",
        "Use spark.readStream.option('changes', True).table(...)."
      )
    case write: WriteToStream =>
      Ours.unapply(write.sink).foreach { table =>
        throw DataErrors.unsupported(
          s"writeStream into ${table.name}",
          "Write each batch by foreachBatch: MERGE does not add one twice that comes again."
        )
      }
      write
    case other => other
  }
}
