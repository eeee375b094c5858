import scala.sys.process.Process

// Scala tests and the format. `jvm_shim/build.py` makes the jar, without sbt; the tests are of it.
// Spark comes from the installed pyspark: what is tested is compiled against what it runs on.
lazy val sparkJars = settingKey[File]("The folder of Spark's jars")

def jarsOfPyspark(): File = {
  val python = sys.env.getOrElse("PYTHON", ".venv/bin/python")
  val question =
    "import importlib.util as u, pathlib as p; print(p.Path(u.find_spec('pyspark').origin).parent / 'jars')"
  file(Process(Seq(python, "-c", question)).!!.trim)
}

// What differs between Spark's minors is in a folder of sources for each.
def minorOf(jars: File): String = {
  val Core = """spark-core_2\.13-(\d+\.\d+)\..*jar""".r
  IO.listFiles(jars)
    .map(_.getName)
    .collectFirst { case Core(minor) => minor }
    .getOrElse(throw new MessageOnlyException(s"there is no Spark in $jars"))
}

def jarsOfShim(project: File, minor: String): Seq[File] = {
  val found = (project / "python/slackwater/jars" * s"slackwater-spark_${minor}_*.jar").get
  if (found.isEmpty) throw new MessageOnlyException("there is no jar to test: run `make jar`")
  found
}

// What Spark itself starts a JVM with, which differs from one Java to another.
def optionsOfSpark(jars: File): Seq[String] = {
  val launcher = IO.listFiles(jars).filter(_.getName.startsWith("spark-launcher_")).map(_.toURI.toURL)
  val options = new java.net.URLClassLoader(launcher, ClassLoader.getPlatformClassLoader)
    .loadClass("org.apache.spark.launcher.JavaModuleOptions")
    .getMethod("defaultModuleOptionArray")
    .invoke(null)
  options.asInstanceOf[Array[String]].toSeq
}

lazy val root = (project in file("."))
  .settings(
    name := "slackwater-spark",
    scalaVersion := "2.13.18",
    scalacOptions ++= IO.readLines(baseDirectory.value / "jvm_shim/scalac.options"),
    Compile / scalaSource := baseDirectory.value / "jvm_shim/src/main/scala",
    Compile / unmanagedSourceDirectories +=
      baseDirectory.value / "jvm_shim/src/main/shims" / s"spark-${minorOf(sparkJars.value)}",
    Compile / resourceDirectory := baseDirectory.value / "jvm_shim/src/main/resources",
    sparkJars := sys.env.get("SPARK_JARS").filter(_.nonEmpty).map(file).getOrElse(jarsOfPyspark()),
    Compile / unmanagedJars := (sparkJars.value * "*.jar").classpath,
    // What is tested is the jar: nothing of it is compiled a second time.
    Compile / sources := Nil,
    Compile / unmanagedJars ++= jarsOfShim(baseDirectory.value, minorOf(sparkJars.value)).classpath,
    Test / unmanagedJars := (Compile / unmanagedJars).value,
    Test / scalaSource := baseDirectory.value / "jvm_shim/src/test/scala",
    libraryDependencies ++= Seq(
      "org.scalatest" %% "scalatest" % "3.2.19" % Test,
      "org.scalatestplus" %% "scalacheck-1-18" % "3.2.19.0" % Test
    ),
    Test / fork := true,
    // Failures alone, without colours (W): suites (H) and tests that pass (C) are not listed.
    // Histories are the same in each run (S), unless SEED asks for others.
    Test / testOptions += Tests.Argument(
      TestFrameworks.ScalaTest,
      "-oWHC",
      "-S",
      sys.env.getOrElse("SEED", "1")
    ),
    Test / resourceDirectory := baseDirectory.value / "jvm_shim/src/test/resources",
    Test / javaOptions ++= Seq("-Xmx2g", "-XX:+UseSerialGC") ++ optionsOfSpark(sparkJars.value),
    Compile / resourceGenerators += Def.task {
      val catalogue = "slackwater-error-conditions.json"
      val target = (Compile / resourceManaged).value / "error" / catalogue
      IO.copyFile(baseDirectory.value / "python/slackwater/repr" / catalogue, target)
      Seq(target)
    }
  )
