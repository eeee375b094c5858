package org.apache.spark.sql.slackwater.protocol

import java.net.URI

import scala.util.{Failure, Try}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.util.VersionInfo

import org.apache.spark.SparkContext

/** Locations in S3, which Hadoop reads through its file system `s3a`.
  *
  * The coordinator finds endpoint, region and credentials in the standard variables of AWS, Hadoop
  * in `fs.s3a.*`. Each side is given what only the other one was told.
  */
private[slackwater] object ObjectStore {

  private final case class Setting(key: String, secret: Boolean, variables: String*)

  private val settings = Seq(
    Setting("fs.s3a.endpoint", false, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    Setting("fs.s3a.endpoint.region", false, "AWS_REGION", "AWS_DEFAULT_REGION"),
    Setting("fs.s3a.access.key", true, "AWS_ACCESS_KEY_ID"),
    Setting("fs.s3a.secret.key", true, "AWS_SECRET_ACCESS_KEY"),
    Setting("fs.s3a.session.token", true, "AWS_SESSION_TOKEN")
  )
  private val pathStyle = "fs.s3a.path.style.access"

  /** Hadoop's path of a URI of the protocol. */
  def path(uri: String): Path = new Path(new URI(uri.replaceFirst("^s3://", "s3a://")))

  /** The protocol's URI of one of Hadoop's: `file:///x`, `s3://bucket/x`. */
  def uri(path: Path): String = {
    val text = path.toUri.toString
    if (text.startsWith("file:/") && !text.startsWith("file://")) "file://" + text.drop(5)
    else text.replaceFirst("^s3a://", "s3://")
  }

  /** Checks that Spark can reach the location; returns variables for the coordinator's process.
    *
    * Raises `SLACKWATER_S3_SUPPORT_MISSING` when Spark was started without what S3 needs.
    */
  def prepare(context: SparkContext, location: String): Map[String, String] =
    if (!isStore(location)) Map.empty
    else {
      val hadoop = context.hadoopConfiguration
      val configured = new Configuration(hadoop)
      options(context, location).foreach { case (key, value) => configured.set(key, value) }
      check(configured, location)
      settings.flatMap(setting => value(hadoop, setting).map(setting.variables.head -> _)).toMap
    }

  /** What Hadoop has to be told besides its configuration to read and write `uri`.
    *
    * It goes with each of our own scans and writes. In the application's configuration it would
    * open the store to everything else that runs there.
    */
  def options(context: SparkContext, uri: String): Map[String, String] =
    if (!isStore(uri)) Map.empty
    else {
      val hadoop = context.hadoopConfiguration
      val told = settings.filter(own(hadoop, _).isEmpty)
      val found = told.flatMap(setting => value(hadoop, setting).map(setting.key -> _)).toMap
      // Buckets as names of hosts need a DNS that such stores rarely have. PyArrow does the same.
      val ownStore = value(hadoop, settings.head).isDefined
      if (ownStore && !context.getConf.contains(s"spark.hadoop.$pathStyle"))
        found + (pathStyle -> "true")
      else found
    }

  private def isStore(uri: String): Boolean = uri.matches("(?s)s3a?://.*")

  private def own(hadoop: Configuration, setting: Setting): Option[String] = {
    val configured =
      if (setting.secret) Option(hadoop.getPassword(setting.key)).map(new String(_))
      else Option(hadoop.getTrimmed(setting.key))
    configured.filter(_.nonEmpty)
  }

  private def value(hadoop: Configuration, setting: Setting): Option[String] =
    own(hadoop, setting).orElse(setting.variables.flatMap(sys.env.get).find(_.nonEmpty))

  /** Hadoop's file system for S3 is no part of Spark. What is wrong with the URI, Python says. */
  private def check(hadoop: Configuration, location: String): Unit =
    Option(Try(path(location).toUri).getOrElse(null)).filter(_.getHost != null).foreach { uri =>
      val bucket = new URI(uri.getScheme, uri.getHost, "/", null)
      Try(FileSystem.get(bucket, hadoop)) match {
        case Failure(missing) if isMissing(missing) =>
          throw Errors.user(
            "SLACKWATER_S3_SUPPORT_MISSING",
            "location" -> s"s3://${uri.getHost}",
            "reason" -> missing.toString,
            "packages" -> s"org.apache.hadoop:hadoop-aws:${VersionInfo.getVersion}"
          )
        case Failure(other) => throw other
        case _              => ()
      }
    }

  private def isMissing(error: Throwable): Boolean =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).exists {
      case _: ClassNotFoundException | _: LinkageError => true
      case _                                           => false
    }
}
