package org.apache.spark.sql.slackwater.binding

import java.lang.StackWalker.StackFrame

import scala.jdk.CollectionConverters._

/** Who has a plan made, where Spark says it nowhere else than on the stack. */
private[slackwater] object CallSite {
  private val walker = StackWalker.getInstance()

  private val execution = "org.apache.spark.sql.execution.QueryExecution"
  private val cache = "org.apache.spark.sql.execution.CacheManager"
  private val filling = Seq("cacheQueryInternal", "ebuildCacheEntry")
  private val cacheTable = "org.apache.spark.sql.execution.datasources.v2.BaseCacheTableExec"
  private val catalog = "org.apache.spark.sql.classic.Catalog"
  private val named = Set("cacheTable", "uncacheView", "isCached")
  private val dataset = "org.apache.spark.sql.classic.Dataset"
  private val arrow = Seq("ollectAsArrow", "oArrowBatch")
  private val connect = "org.apache.spark.sql.connect.execution.SparkConnectPlanExecution"
  private val frontEnds =
    Seq("org.apache.spark.sql.connect.", "org.apache.spark.sql.hive.thriftserver.")

  /** Whether a plan is executed next, although no SQL execution runs yet: it becomes an RDD, or a
    * server has it made for a statement that it has just got.
    */
  def executeAtOnce: Boolean = exists { frame =>
    val name = frame.getClassName
    name == execution && frame.getMethodName.contains("oRdd") || frontEnds.exists(name.startsWith)
  }

  /** Whether the rows of a plan that is executed now come to the driver in Arrow's form. */
  def collectArrow: Boolean = exists { frame =>
    val (name, method) = (frame.getClassName, frame.getMethodName)
    name.startsWith(connect) || name == dataset && arrow.exists(method.contains)
  }

  /** Whether the plan is made to fill Spark's cache, which may compute its rows at any time. */
  def fillCache: Boolean = exists { frame =>
    frame.getClassName == cache && filling.exists(frame.getMethodName.contains)
  }

  /** Whether the plan will be the name of an entry of Spark's cache, or is compared with those. It
    * is the plan of a DataFrame otherwise, also where that is to be cached; but one that the catalog
    * makes for a table's name is never executed itself.
    */
  def nameCached: Boolean = {
    def isCache(frame: StackFrame) = frame.getClassName == cache
    def isFill(frame: StackFrame) = isCache(frame) && filling.exists(frame.getMethodName.contains)
    def isQuery(frame: StackFrame) =
      frame.getClassName == execution && frame.getMethodName.contains("azyNormalized")
    def isNamed(frame: StackFrame) =
      frame.getClassName == cacheTable || frame.getClassName == catalog && named(
        frame.getMethodName
      )
    walker.walk[Boolean] { frames =>
      val known = frames.filter(f => isCache(f) || isQuery(f) || isNamed(f)).iterator.asScala.toSeq
      known.headOption.exists(isCache) || !known.exists(isFill) && known.exists(isNamed) &&
      known.exists(isCache)
    }
  }

  private def exists(wanted: StackFrame => Boolean): Boolean =
    walker.walk[Boolean](frames => frames.anyMatch(frame => wanted(frame)))
}
