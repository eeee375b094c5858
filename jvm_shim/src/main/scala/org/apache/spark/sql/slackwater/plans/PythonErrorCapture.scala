package org.apache.spark.sql.slackwater.plans

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{ByteBuffer, ByteOrder}

import org.apache.spark.api.python.{PythonEvalType, PythonException, SimplePythonFunction}
import org.apache.spark.sql.catalyst.expressions.{NamedExpression, PythonUDF}
import org.apache.spark.sql.types.StringType

/** What functions of Python raise, as values. */
private[plans] object PythonErrorCapture {

  private val ofRows = Set(PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF)

  /** The traceback of what the call raises, NULL where it returns; None: it is not called for each
    * row, or is made of more than its command.
    */
  def of(call: PythonUDF): Option[PythonUDF] = call.func match {
    case function: SimplePythonFunction if call.deterministic && ofRows(call.evalType) =>
      val captured = function.copy(command = capturing(function.command.toArray).toSeq)
      Some(call.copy(func = captured, dataType = StringType, resultId = NamedExpression.newExprId))
    case _ => None
  }

  def raised(traceback: String): PythonException = {
    val message = "An exception was thrown from the Python worker"
    new PythonException("PYTHON_EXCEPTION", Map("msg" -> message, "traceback" -> traceback))
  }

  /** A command is a pickle of a function and its type. Tracebacks have its names and its lines. */
  private val source = """
    |from traceback import format_exc
    |from pyspark.cloudpickle import loads
    |from pyspark.sql.types import StringType
    |
    |def complaining(command):
    |    function, _ = loads(command)
    |
    |    def complaint(*args, **named):
    |        try:
    |            function(*args, **named)
    |        except Exception:
    |            return format_exc()
    |
    |    return complaint, StringType()
    |""".stripMargin

  /** A pickle that runs `source`, and then `complaining(command)`.
    *
    * It holds text alone beside the command, so that any version of Python can load it.
    */
  private def capturing(command: Array[Byte]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    def sized(code: Char, content: Array[Byte]): Unit = {
      out.writeByte(code)
      out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(content.length).array)
      out.write(content)
    }
    def text(value: String): Unit = sized('X', value.getBytes(UTF_8))
    def global(module: String, name: String): Unit = out.writeBytes(s"c$module\n$name\n")
    def call(arguments: Int): Unit = out.write(Array((0x84 + arguments).toByte, 'R'.toByte))
    out.write(Array(0x80.toByte, 3.toByte))
    global("builtins", "exec")
    text(source)
    out.writeBytes("}q\u0000") // its names: an empty dict, kept as 0
    call(2)
    out.writeBytes("0") // exec returns nothing
    global("operator", "getitem")
    out.writeBytes("h\u0000")
    text("complaining")
    call(2)
    sized('B', command)
    call(1)
    out.writeBytes(".")
    bytes.toByteArray
  }
}
