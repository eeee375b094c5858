package org.apache.spark.sql.slackwater.bridge

import java.nio.ByteBuffer

import org.apache.spark.sql.slackwater.programs.Compiled
import org.apache.spark.{Partition, SparkEnv}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical.{
  HintInfo,
  Join,
  JoinHint,
  LogicalPlan,
  SHUFFLE_HASH,
  SHUFFLE_REPLICATE_NL
}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, SQLExecution}
import org.apache.spark.sql.execution.exchange.{Exchange, ReusedExchangeExec, ShuffleExchangeExec}
import org.apache.spark.sql.execution.python.EvalPythonExec
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.scan.execution.{DriverTask, OnePartitionExec, Slots}

/** A query over slots that one thread of the driver can compute: planned once, run often.
  *
  * It runs as a task does, from a serialized copy of its RDD, but without a job: for a few rows
  * scheduling costs more than computing.
  */
private[slackwater] final class CompiledQuery private (
    session: SparkSession,
    task: Array[Byte]
) extends Compiled {
  import CompiledQuery.Task

  override def run(
      slots: scala.collection.Map[String, () => Iterator[InternalRow]]
  ): Seq[UnsafeRow] = {
    val conf = session.sessionState.conf
    SQLConf.withExistingConf(conf) {
      Slots.within(slots)(DriverTask.run(DriverTask.propertiesOf(conf)) { context =>
        val (rdd, partitions) = SparkEnv.get.closureSerializer
          .newInstance()
          .deserialize[Task](ByteBuffer.wrap(task), Thread.currentThread.getContextClassLoader)
        partitions.toIndexedSeq.flatMap { partition =>
          rdd.iterator(partition, context).map(_.asInstanceOf[UnsafeRow].copy())
        }
      })
    }
  }
}

private[slackwater] object CompiledQuery {
  private type Task = (RDD[InternalRow], Array[Partition])

  /** The compiled form of an analyzed plan; None where it needs a job. */
  def of(session: SparkSession, plan: LogicalPlan): Option[CompiledQuery] =
    SQLExecution.withSQLConfPropagated(session) {
      val planned = session.sessionState.executePlan(withoutExchanges(plan)).executedPlan
      val physical = withoutShuffles(planned)
      if (needsJob(physical)) None
      else {
        val rdd = physical.execute()
        if (!DriverTask.isNarrow(rdd)) None
        else {
          val task: Task = (rdd, rdd.partitions)
          val bytes = SparkEnv.get.closureSerializer.newInstance().serialize(task).array()
          Some(new CompiledQuery(session, bytes))
        }
      }
    }

  /** Joins that need neither a broadcast nor a shuffle where each side is one partition. */
  private def withoutExchanges(plan: LogicalPlan): LogicalPlan = {
    val hash = Some(HintInfo(strategy = Some(SHUFFLE_HASH)))
    val loop = Some(HintInfo(strategy = Some(SHUFFLE_REPLICATE_NL)))
    plan.transformUpWithSubqueries { case join: Join =>
      join.joinType match {
        case _: InnerLike => join.copy(hint = JoinHint(hash, loop))
        case RightOuter   => join.copy(hint = JoinHint(hash, None))
        case _            => join.copy(hint = JoinHint(None, hash))
      }
    }
  }

  /** Spark shuffles also where it does not see that all rows are in one partition already. */
  private def withoutShuffles(plan: SparkPlan): SparkPlan = plan.transformUp {
    case shuffle: ShuffleExchangeExec if shuffle.outputPartitioning.numPartitions == 1 =>
      OnePartitionExec(shuffle.child)
  }

  private def needsJob(plan: SparkPlan): Boolean = plan.exists {
    case _: Exchange | _: ReusedExchangeExec | _: EvalPythonExec => true
    case node                                                    => node.subqueries.nonEmpty
  }
}
