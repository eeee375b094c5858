package org.apache.spark.sql.slackwater.shims

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.util.LazyTry

/** What a physical plan keeps of its execution. */
private[slackwater] object Executions {
  private val kept = {
    val field = classOf[SparkPlan].getDeclaredField("executeRDD")
    field.setAccessible(true)
    field
  }

  /** Has `plan` make its RDD by `execute` when it is asked for one the next time. */
  def forget(plan: SparkPlan)(execute: => RDD[InternalRow]): Unit =
    kept.set(plan, LazyTry(execute))
}
