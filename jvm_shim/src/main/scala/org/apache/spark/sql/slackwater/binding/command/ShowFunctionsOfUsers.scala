package org.apache.spark.sql.slackwater.binding.command

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.command.{LeafRunnableCommand, ShowFunctionsCommand}
import org.apache.spark.sql.slackwater.binding.{MzNow, NotNullAsserted}

/** SHOW FUNCTIONS of the session's catalog without what we have put there.
  *
  * `mz_now` is listed with all functions, as those are that Spark comes with.
  */
case class ShowFunctionsOfUsers(show: ShowFunctionsCommand) extends LeafRunnableCommand {
  override val output: Seq[Attribute] = show.output

  override def run(session: SparkSession): Seq[Row] = {
    val hidden = Set(NotNullAsserted.Name) ++
      Option.when(!show.showSystemFunctions)(MzNow.Name)
    show.run(session).filterNot(row => hidden(row.getString(0)))
  }
}
