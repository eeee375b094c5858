import scala.sys.process.Process

// Spark comes from the installed pyspark: the jar is compiled against what it runs on.
lazy val sparkJars = settingKey[File]("The folder of Spark's jars")
lazy val shimJar = taskKey[File]("Builds the shim and puts it beside the Python package")

lazy val sparkMinor = settingKey[String]("The minor version of Spark that the shim is built for")

def versionOf(pyproject: File): String =
  IO.readLines(pyproject)
    .map(_.trim)
    .collectFirst { case line if line.startsWith("version") => line.split('"')(1) }
    .getOrElse(sys.error(s"$pyproject states no version"))

def jarsOfPyspark(): File = {
  val python = sys.env.getOrElse("PYTHON", ".venv/bin/python")
  val question =
    "import importlib.util as u, pathlib as p; print(p.Path(u.find_spec('pyspark').origin).parent / 'jars')"
  file(Process(Seq(python, "-c", question)).!!.trim)
}

// What differs between Spark's minors is in a folder of sources for each.
def minorOf(jars: File, shims: File): String = {
  val Core = """spark-core_2\.13-(\d+\.\d+)\..*jar""".r
  val installed = IO.listFiles(jars).map(_.getName).collectFirst { case Core(minor) => minor }
  val known = IO.listFiles(shims).map(_.getName.stripPrefix("spark-")).sorted
  installed match {
    case Some(minor) if known.contains(minor) => minor
    case Some(minor) =>
      throw new MessageOnlyException(
        s"the shim is written for Spark ${known.mkString(" and ")}, and Spark $minor is installed; " +
          s"install a pyspark of a known version, or write $shims/spark-$minor"
      )
    case None => throw new MessageOnlyException(s"there is no Spark in $jars")
  }
}

// What org.apache.spark.launcher.JavaModuleOptions opens, as far as rows outside the heap need it.
val opensOfSpark = Seq("java.lang", "java.nio", "java.util", "sun.nio.ch")
  .map(name => s"--add-opens=java.base/$name=ALL-UNNAMED") :+
  "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED"

lazy val root = (project in file("."))
  .settings(
    name := "slackwater-spark",
    moduleName := s"slackwater-spark_${sparkMinor.value}",
    artifactName := ((scala, module, artifact) => {
      val kind = artifact.classifier.fold("")("-" + _)
      s"${module.name}_${scala.binary}-${module.revision}$kind.${artifact.extension}"
    }),
    organization := "io.slackwater",
    version := versionOf(baseDirectory.value / "pyproject.toml"),
    scalaVersion := "2.13.18",
    scalacOptions ++= Seq(
      "-release:17",
      "-deprecation",
      "-feature",
      "-unchecked",
      "-Wunused:imports,privates,locals"
    ),
    Compile / scalaSource := baseDirectory.value / "jvm_shim/src/main/scala",
    Compile / unmanagedSourceDirectories +=
      baseDirectory.value / "jvm_shim/src/main/shims" / s"spark-${sparkMinor.value}",
    Compile / resourceDirectory := baseDirectory.value / "jvm_shim/src/main/resources",
    sparkJars := sys.env.get("SPARK_JARS").filter(_.nonEmpty).map(file).getOrElse(jarsOfPyspark()),
    sparkMinor := minorOf(sparkJars.value, baseDirectory.value / "jvm_shim/src/main/shims"),
    Compile / unmanagedJars := (sparkJars.value * "*.jar").classpath,
    Test / unmanagedJars := (Compile / unmanagedJars).value,
    Test / scalaSource := baseDirectory.value / "jvm_shim/src/test/scala",
    libraryDependencies ++= Seq(
      "org.scalatest" %% "scalatest" % "3.2.19" % Test,
      "org.scalatestplus" %% "scalacheck-1-18" % "3.2.19.0" % Test
    ),
    Test / fork := true,
    Test / javaOptions ++= "-Xmx2g" +: opensOfSpark,
    Compile / resourceGenerators += Def.task {
      val catalogue = "slackwater-error-conditions.json"
      val target = (Compile / resourceManaged).value / "error" / catalogue
      IO.copyFile(baseDirectory.value / "python/slackwater/repr" / catalogue, target)
      Seq(target)
    },
    shimJar := {
      val jar = (Compile / packageBin).value
      val folder = baseDirectory.value / "python/slackwater/jars"
      IO.delete((folder * s"slackwater-spark_${sparkMinor.value}_*.jar").get())
      val target = folder / jar.getName
      IO.copyFile(jar, target)
      target
    }
  )
