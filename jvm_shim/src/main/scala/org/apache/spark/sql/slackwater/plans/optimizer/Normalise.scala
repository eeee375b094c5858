package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer._
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.{Rule, RuleExecutor}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot
import org.apache.spark.sql.slackwater.process.ResultSettings

/** Brings an analyzed plan into the few operators that are maintained, without subqueries.
  *
  * The rules are those of Spark's that hold whatever the collections contain and whenever the view
  * is read: none folds time, a user, or data, and none asks for statistics.
  */
private[slackwater] final class Normalise extends RuleExecutor[LogicalPlan] {
  private val repeatedly = FixedPoint(100)

  private val reduce: Seq[Rule[LogicalPlan]] = Seq(
    PushProjectionThroughUnion,
    ReorderJoin,
    EliminateOuterJoin,
    PushDownPredicates,
    ColumnPruning,
    NullPropagation,
    CollapseProject,
    CombineUnions,
    BooleanSimplification,
    SimplifyCasts,
    KnownSizes,
    RemoveRedundantAliases,
    RemoveNoopOperators
  )

  override protected def batches: Seq[Batch] = Seq(
    Batch(
      "what only analysis needs",
      Once,
      new WithSubqueries(
        EliminateResolvedHint,
        EliminateSubqueryAliases,
        EliminatePipeOperators,
        EliminateView,
        EliminateSQLFunctionNode,
        ReplaceExpressions,
        DatedTexts,
        CountExists,
        PullOutGroupingExpressions,
        RewriteAsOfJoin,
        JoinNearest,
        RewriteCollationJoin,
        LimitSorted
      ),
      InlineCTE(alwaysInline = true),
      KeepRecursions
    ),
    Batch("common expressions", repeatedly, RewriteWithExpression),
    Batch(
      "correlation",
      Once,
      OptimizeOneRowRelationSubquery,
      PullOutNestedDataOuterRefExpressions,
      PullupCorrelatedPredicates
    ),
    Batch(
      "inside of subqueries",
      Once,
      new NormaliseSubqueries(execute),
      OptimizeOneRowRelationSubquery
    ),
    Batch(
      "sets",
      repeatedly,
      ReplaceDeduplicateWithAggregate,
      RewriteExceptAll,
      RewriteIntersectAll,
      ReplaceIntersectWithSemiJoin,
      ReplaceExceptWithAntiJoin,
      ReplaceDistinctWithAggregate
    ),
    Batch(
      "grouping",
      repeatedly,
      RemoveLiteralFromGroupExpressions,
      RemoveRepetitionFromGroupExpressions
    ),
    Batch(
      "correlated subqueries",
      repeatedly,
      RewriteCorrelatedScalarSubquery,
      RewriteLateralSubquery
    ),
    Batch("operators", repeatedly, reduce: _*),
    Batch(
      "subqueries",
      Once,
      NullAwareInJoins,
      RewritePredicateSubquery,
      SplitNullAware,
      AskAboveAggregates,
      JoinScalarSubqueries,
      CountSingleRows
    ),
    Batch("operators again", repeatedly, reduce: _*),
    Batch("nullability", Once, UpdateAttributeNullability)
  )
}

private[slackwater] object Normalise {

  /** The normal form of what `session` has analyzed, with slots for the collections. */
  def apply(session: SparkSession, analyzed: LogicalPlan): LogicalPlan =
    SQLConf.withExistingConf(settings(session)) {
      val normal = new Normalise().execute(CollectionSlot.inPlaceOfCollections(analyzed))
      val parts = Seq(
        SeparateTemporal,
        CallPythonInProjections,
        SettleAggregates,
        KeyForms,
        SplitAggregates,
        PassBesideWindows,
        NumberLimited,
        TotalOrdering,
        NumberInBuckets
      )
      val settled = parts.foldLeft(normal)((plan, rule) => rule(plan))
      RemoveNoopOperators(PruneSlots(RestoreRecursions(settled)))
    }

  /** What can change a result as the session has it, and Spark's defaults for all that tunes plans:
    * the same view has the same plan wherever it is made.
    */
  private[plans] def settings(session: SparkSession): SQLConf = {
    val conf = new SQLConf
    ResultSettings.of(session).foreach { case (key, value) =>
      if (!tuning.exists(key.startsWith)) conf.setConfString(key, value)
    }
    conf
  }

  /** Spark keeps these for its views too, though they change no result. */
  private val tuning = Seq(
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.cbo.",
    "spark.sql.constraintPropagation.",
    "spark.sql.debug.",
    "spark.sql.join.",
    "spark.sql.planChangeLog.",
    "spark.sql.statistics."
  )
}
