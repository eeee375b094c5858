package org.apache.spark.sql.slackwater.bridge

import java.security.MessageDigest
import java.util.Locale
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import org.apache.spark.sql.catalyst.analysis.TypeCheckResult
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** `hmac(message, key, algorithm)`: the keyed digest, as bytes. Message and key are texts or bytes.
  */
private[bridge] final case class Hmac(message: Expression, key: Expression, algorithm: Expression)
    extends TernaryExpression
    with ExpectsInputTypes
    with CodegenFallback {

  override def first: Expression = message
  override def second: Expression = key
  override def third: Expression = algorithm
  override def dataType: DataType = BinaryType
  override def nullable: Boolean = true
  override def nullIntolerant: Boolean = true
  override def prettyName: String = "hmac"
  override def inputTypes: Seq[AbstractDataType] =
    Seq(Signatures.texts, Signatures.texts, StringType)

  override def checkInputDataTypes(): TypeCheckResult = {
    val types = super.checkInputDataTypes()
    if (types.isSuccess && algorithm.foldable && !Hmac.knows(algorithm.eval())) {
      TypeCheckResult.TypeCheckFailure(
        s"the algorithms of hmac are ${Hmac.algorithms.mkString(", ")}"
      )
    } else types
  }

  override protected def nullSafeEval(message: Any, key: Any, algorithm: Any): Any = {
    val name = algorithm.toString.toLowerCase(Locale.ROOT)
    val mac = Mac.getInstance(s"Hmac${name.toUpperCase(Locale.ROOT)}")
    val bytes = Signatures.bytes(key)
    // Java has no key without bytes; padded by one zero it is the same key.
    mac.init(new SecretKeySpec(if (bytes.isEmpty) Array[Byte](0) else bytes, mac.getAlgorithm))
    mac.doFinal(Signatures.bytes(message))
  }

  override protected def withNewChildrenInternal(
      message: Expression,
      key: Expression,
      algorithm: Expression
  ): Hmac = copy(message, key, algorithm)
}

private[bridge] object Hmac {
  val algorithms: Seq[String] = Seq("md5", "sha1", "sha224", "sha256", "sha384", "sha512")

  val of: Seq[Expression] => Expression = {
    case Seq(message, key, algorithm) => Hmac(message, key, algorithm)
    case other => throw QueryCompilationErrors.wrongNumArgsError("hmac", Seq(3), other.size)
  }

  private def knows(algorithm: Any): Boolean =
    algorithm == null || algorithms.contains(algorithm.toString.toLowerCase(Locale.ROOT))
}

/** `constant_time_eq(a, b)`: whether texts or bytes are equal; how long it takes does not say where
  * they differ.
  */
private[bridge] final case class ConstantTimeEq(left: Expression, right: Expression)
    extends BinaryExpression
    with ExpectsInputTypes
    with CodegenFallback {

  override def dataType: DataType = BooleanType
  override def nullIntolerant: Boolean = true
  override def prettyName: String = "constant_time_eq"
  override def inputTypes: Seq[AbstractDataType] = Seq(Signatures.texts, Signatures.texts)

  override protected def nullSafeEval(left: Any, right: Any): Any =
    MessageDigest.isEqual(Signatures.bytes(left), Signatures.bytes(right))

  override protected def withNewChildrenInternal(
      left: Expression,
      right: Expression
  ): ConstantTimeEq = copy(left, right)
}

private[bridge] object ConstantTimeEq {
  val of: Seq[Expression] => Expression = {
    case Seq(left, right) => ConstantTimeEq(left, right)
    case other            =>
      throw QueryCompilationErrors.wrongNumArgsError("constant_time_eq", Seq(2), other.size)
  }
}

private[bridge] object Signatures {
  val texts: TypeCollection = TypeCollection(StringType, BinaryType)

  def bytes(value: Any): Array[Byte] = value match {
    case text: UTF8String   => text.getBytes
    case bytes: Array[Byte] => bytes
  }
}
