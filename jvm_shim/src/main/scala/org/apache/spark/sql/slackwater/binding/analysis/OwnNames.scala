package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.slackwater.catalog.{IdentifiedTable, SlackwaterTable}
import org.apache.spark.sql.slackwater.shims.V2Relation

/** Gives UPDATE, DELETE and MERGE what they identify rows by, once all names are resolved.
  *
  * Spark then rewrites them with columns of its own, which it finds by their names (`__row_operation`,
  * `__row_id`, `__row_from_source`, ..). Where columns of users begin as those do, all of them get
  * other names for the rewriting; attributes are the same by their ids.
  */
private[slackwater] object OwnNames extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan =
    AnalysisHelper.allowInvokingTransformsInAnalyzer {
      plan.resolveOperators {
        case delete: DeleteFromTable if Pending.is(delete.condition) =>
          val bare = delete.copy(condition = Pending.without(delete.condition))
          if (bare.resolved) identified(bare) else delete
        case update: UpdateTable if update.condition.exists(Pending.is) =>
          val condition = update.condition.map(Pending.without).filterNot(Pending.is)
          val bare = update.copy(condition = condition)
          if (bare.resolved) identified(bare) else update
        case merge: MergeIntoTable if Pending.is(merge.mergeCondition) =>
          val bare = merge.copy(mergeCondition = Pending.without(merge.mergeCondition))
          if (bare.resolved) identified(bare) else merge
      }
    }

  private def identified(command: LogicalPlan): LogicalPlan = command match {
    case delete @ DeleteFromTable(Plain(target), _) =>
      val own = new Names(target, None)
      own.expressions(delete.copy(table = own.target(delete.table)))
    case update @ UpdateTable(Plain(target), _, _) =>
      val own = new Names(target, None)
      own.expressions(update.copy(table = own.target(update.table)))
    case merge: MergeIntoTable =>
      merge.targetTable match {
        case Plain(target) =>
          val own = new Names(target, Some(merge.sourceTable))
          val source = own.source.getOrElse(merge.sourceTable)
          val table = own.target(merge.targetTable)
          own.expressions(merge.copy(targetTable = table, sourceTable = source))
        case _ => merge
      }
    case other => other
  }

  /** A table of ours that does not identify its rows yet. */
  private object Plain {
    def unapply(table: LogicalPlan): Option[DataSourceV2Relation] =
      EliminateSubqueryAliases(table) match {
        case V2Relation(_: IdentifiedTable)            => None
        case relation @ V2Relation(_: SlackwaterTable) => Some(relation)
        case _                                         => None
      }
  }

  private final class Names(relation: DataSourceV2Relation, from: Option[LogicalPlan]) {
    private val needed =
      (relation.output ++ from.toSeq.flatMap(_.output)).exists(_.name.startsWith("__"))

    private val output: Seq[AttributeReference] =
      if (!needed) relation.output
      else relation.output.zipWithIndex.map { case (a, n) => a.withName(s"target_$n") }

    /** What is merged, under other names. */
    val source: Option[LogicalPlan] = from.filter(_ => needed).map { plan =>
      Project(plan.output.zipWithIndex.map { case (a, n) => Alias(a, s"source_$n")() }, plan)
    }

    private val renamed: AttributeMap[Attribute] = {
      val sources = from.zip(source).toSeq.flatMap { case (old, now) => old.output.zip(now.output) }
      AttributeMap(relation.output.zip(output) ++ sources)
    }

    def target(table: LogicalPlan): LogicalPlan = table.transform {
      case r @ V2Relation(plain: SlackwaterTable) =>
        r.copy(table = new IdentifiedTable(plain), output = output)
    }

    def expressions(command: LogicalPlan): LogicalPlan =
      if (needed) command.mapExpressions(in) else command

    private def in(expression: Expression): Expression = expression.transform {
      case a: AttributeReference => renamed.getOrElse(a, a)
      case s: SubqueryExpression =>
        s.withNewPlan(s.plan.transformAllExpressionsWithSubqueries { case OuterReference(a) =>
          OuterReference(renamed.getOrElse(a.toAttribute, a))
        })
    }
  }
}
