package org.apache.spark.sql.slackwater.plans.expressions

import org.apache.spark.sql.catalyst.expressions.aggregate._

/** Which sums of products an aggregate of deviations from the mean asks for.
  *
  * @param powers
  *   of x and y, in each product
  * @param isPair
  *   whether there is a y
  * @param isTurned
  *   whether the second argument is x
  */
private[slackwater] final case class Moments(
    powers: Seq[(Int, Int)],
    isPair: Boolean,
    isTurned: Boolean
)

private[slackwater] object Moments {
  private def ofOne(order: Int): Moments = Moments((1 to order).map((_, 0)), false, false)
  private val ofTwo = Moments(Seq((1, 0), (0, 1), (1, 1), (2, 0), (0, 2)), true, false)

  /** Of the variances, of correlations and regressions; None: of others. */
  def of(function: AggregateFunction): Option[Moments] = function match {
    case _: Kurtosis                           => Some(ofOne(4))
    case _: Skewness                           => Some(ofOne(3))
    case _: CentralMomentAgg                   => Some(ofOne(2))
    case _: RegrSlope | _: RegrIntercept       => Some(ofTwo.copy(isTurned = true))
    case _: Covariance | _: PearsonCorrelation => Some(ofTwo)
    case _                                     => None
  }
}
