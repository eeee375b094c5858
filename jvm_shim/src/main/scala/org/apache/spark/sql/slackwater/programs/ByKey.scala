package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Something for each key, made when the key comes first, in that order.
  *
  * A key that is asked for may be used again for the next one: what is kept is a copy.
  */
private[programs] final class ByKey[A](make: => A) {
  private val known = mutable.LinkedHashMap.empty[UnsafeRow, A]

  def apply(key: UnsafeRow): A = known.getOrElse(
    key, {
      val made = make
      known.put(key.copy(), made)
      made
    }
  )

  def size: Int = known.size
  def iterator: Iterator[(UnsafeRow, A)] = known.iterator
  def foreach[B](visit: ((UnsafeRow, A)) => B): Unit = known.foreach(visit)
}
