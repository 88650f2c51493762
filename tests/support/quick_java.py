"""Java options for tests that make short processes start faster."""

from __future__ import annotations

from pathlib import Path

from analytics import low_priority, spark_conf

OPTIONS = (*low_priority.JAVA_OPTIONS.split(), "-XX:-UsePerfData")
COMPILER = ("javac", *(f"-J{option}" for option in OPTIONS), "-nowarn")
MAVEN = ("env", f"MAVEN_OPTS={' '.join(OPTIONS)}", "mvn", "--quiet", "--batch-mode")
WITHOUT_TLS = "-Dtls.server.mode=disabled"
"""For the real RocketMQ, which generates a certificate at each start."""
QUICK_SPARK = {
    # A nice'd process gets no CPU time on a machine that is busy with other tests.
    low_priority.VARIABLE: "false",
    spark_conf.VARIABLE: str(Path(__file__).with_name("spark.conf")),
}
"""Environment of processes that start Spark."""
