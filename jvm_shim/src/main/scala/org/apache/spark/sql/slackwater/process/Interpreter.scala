package org.apache.spark.sql.slackwater.process

import java.nio.file.{Files, Path, Paths}

import scala.util.Try

/** Finds the Python that has Slackwater. */
private[process] object Interpreter {

  def find(configured: Option[String]): String = configured.getOrElse {
    val fromEnvironment =
      Seq("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON").flatMap(sys.env.get).filter(isPython)
    val fromVenv = sys.env.get("VIRTUAL_ENV").map(venv => s"$venv/bin/python")
    val fromJar = jar.toSeq.flatMap(ancestors).flatMap { folder =>
      Seq(folder.resolve("bin/python"), folder.resolve(".venv/bin/python")).map(_.toString)
    }
    (fromEnvironment ++ fromVenv ++ fromJar).find(exists).getOrElse("python3")
  }

  /** The folder that holds the package `slackwater` whose `jars` folder holds the jar. */
  def packageRoot: Option[Path] =
    for {
      file <- jar
      folder <- Option(file.getParent).map(_.getParent) if folder != null
      if Files.exists(folder.resolve("__init__.py"))
    } yield folder.getParent

  /** The driver's Python may be a notebook's: that runs no module. */
  private def isPython(command: String): Boolean =
    Paths.get(command).getFileName.toString.startsWith("python")

  private def exists(command: String): Boolean =
    if (command.contains("/")) Files.isExecutable(Paths.get(command))
    else
      sys.env.getOrElse("PATH", "").split(java.io.File.pathSeparator).exists { folder =>
        Files.isExecutable(Paths.get(folder, command))
      }

  private def jar: Option[Path] =
    Try(Paths.get(getClass.getProtectionDomain.getCodeSource.getLocation.toURI)).toOption

  private def ancestors(path: Path): Seq[Path] =
    Iterator.iterate(path.getParent)(_.getParent).takeWhile(_ != null).toSeq
}
