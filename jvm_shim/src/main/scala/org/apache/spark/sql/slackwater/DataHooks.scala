package org.apache.spark.sql.slackwater

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.binding.{MzNow, NotNullAsserted}
import org.apache.spark.sql.slackwater.binding.analysis.{
  KeepPending,
  MzNowCompared,
  NotNullColumns,
  OwnNames,
  RefuseEvolution,
  ResolveAsOf,
  ResolveKept,
  SparkStatements,
  WholeTables
}
import org.apache.spark.sql.slackwater.binding.execution.DataStrategy
import org.apache.spark.sql.slackwater.binding.normalization.Binding
import org.apache.spark.sql.slackwater.scan.optimizer.{
  ExpandScans,
  FilterRetracted,
  FoldInlineRows,
  LimitReplicas
}
import org.apache.spark.sql.slackwater.stream.{RefuseStreams, ResolveStreams, StreamStrategy}

/** The rules that read and write collections. */
object DataHooks {
  def install(extensions: SparkSessionExtensions): Unit = {
    extensions.injectFunction(MzNow.description)
    extensions.injectFunction(NotNullAsserted.description)
    extensions.injectHintResolutionRule(ResolveKept(_))
    extensions.injectHintResolutionRule(RefuseEvolution(_))
    extensions.injectHintResolutionRule(KeepPending(_))
    extensions.injectHintResolutionRule(ResolveStreams(_))
    extensions.injectResolutionRule(_ => OwnNames)
    extensions.injectResolutionRule(_ => ResolveAsOf)
    extensions.injectResolutionRule(_ => MzNowCompared)
    extensions.injectPostHocResolutionRule(SparkStatements(_))
    extensions.injectPostHocResolutionRule(_ => NotNullColumns)
    extensions.injectPostHocResolutionRule(_ => WholeTables)
    extensions.injectPostHocResolutionRule(_ => RefuseStreams)
    extensions.injectPlanNormalizationRule(s => Binding(s.asInstanceOf[SparkSession]))
    extensions.injectOptimizerRule(s => ExpandScans(s.asInstanceOf[SparkSession]))
    extensions.injectOptimizerRule(_ => FilterRetracted)
    extensions.injectOptimizerRule(_ => FoldInlineRows)
    extensions.injectOptimizerRule(_ => LimitReplicas)
    extensions.injectPlannerStrategy(_ => DataStrategy)
    extensions.injectPlannerStrategy(_ => StreamStrategy)
  }
}
