package org.apache.spark.sql.slackwater.programs

/** What an operator did in one tick. */
private[slackwater] final class OperatorMetrics(budget: TickBudget) {
  var emitted = 0L
  var lookedUp = 0L
  var nanos = 0L

  /** Another program has done it. */
  var isShared = false

  def found(): Unit = {
    lookedUp += 1
    budget.visit()
  }
}

/** A tick that runs: its interval, and what each operator of the program has emitted in it.
  *
  * @param deltas
  *   the updates of the collections, by the number of the operator that reads them
  * @param before
  *   where rows are read that no arrangement keeps
  */
private[slackwater] final class TickContext(
    val lower: Long,
    val upper: Long,
    size: Int,
    val deltas: Int => Updates,
    val budget: TickBudget,
    val before: Option[Before]
) {
  private val results = new Array[Updates](size)
  val metrics: IndexedSeq[OperatorMetrics] = IndexedSeq.fill(size)(new OperatorMetrics(budget))

  def apply(operator: Int): Updates = results(operator)
  def update(operator: Int, updates: Updates): Unit = results(operator) = updates

  /** Nobody reads what the operator has emitted any more. */
  def forget(operator: Int): Unit = {
    // A union of one passes on what another operator has emitted.
    if (results.count(_ eq results(operator)) == 1) results(operator).giveBack()
    results(operator) = Updates.none
  }
}
