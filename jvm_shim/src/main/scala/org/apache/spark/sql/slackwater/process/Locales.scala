package org.apache.spark.sql.slackwater.process

import java.nio.charset.Charset

import org.apache.spark.sql.slackwater.protocol.Errors

/** Whether this JVM can name files and give variables to processes as the settings say them.
  *
  * It takes the character set for both from the locale: in the locale C that is ASCII, and other
  * characters would become question marks, which name another file.
  */
private[process] object Locales {
  private val prefix = "spark.slackwater."

  /** Raises `SLACKWATER_INVALID_OPTION` for a setting, below `spark.slackwater.`, that cannot be said.
    */
  def check(settings: Seq[(String, String)]): Unit = check(settings, sets)

  private[process] def check(settings: Seq[(String, String)], sets: Seq[Charset]): Unit =
    for {
      (name, value) <- settings
      set <- sets.find(!_.newEncoder.canEncode(value))
    } throw Errors.user(
      "SLACKWATER_INVALID_OPTION",
      "option" -> s"$prefix$name",
      "statement" -> "the session",
      "value" -> (if (name.startsWith("metastore")) "(hidden)" else value),
      "reason" -> (s"the JVM of the application knows only characters of ${set.name}, because of " +
        "its locale; start the application with the variable LC_ALL=C.UTF-8")
    )

  /** That of files, and that of variables, which Java 17 takes for another. */
  private def sets: Seq[Charset] =
    Option(System.getProperty("sun.jnu.encoding")).map(Charset.forName).toSeq :+
      Charset.defaultCharset
}
