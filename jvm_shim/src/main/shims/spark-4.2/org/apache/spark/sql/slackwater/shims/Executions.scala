package org.apache.spark.sql.slackwater.shims

import java.lang.reflect.Field

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.{QueryExecution, SQLExecutionRDD, SparkPlan}
import org.apache.spark.util.LazyTry

/** What a physical plan, and the query whose plan it is, keep of its execution. */
private[slackwater] object Executions {
  private val kept = field(classOf[SparkPlan], "executeRDD")
  private val keptByQuery = field(classOf[QueryExecution], "lazyToRdd")

  /** Has `plan` make its RDD by `execute` when it is asked for one the next time. */
  def forget(plan: SparkPlan)(execute: => RDD[InternalRow]): Unit =
    kept.set(plan, LazyTry(execute))

  /** Has `query` ask its plan for an RDD each time it is asked for one. */
  def forgetRdd(query: QueryExecution): Unit = {
    def made =
      new SQLExecutionRDD(query.executedPlan.execute(), query.sparkSession.sessionState.conf)
    keptByQuery.set(query, LazyTry(made))
  }

  private def field(of: Class[_], name: String): Field = {
    val found = of.getDeclaredField(name)
    found.setAccessible(true)
    found
  }
}
