"""The operator's own settings of Spark: a file in the format of spark-defaults.conf.

# one setting per line: the name, white space or =, the value
spark.executor.instances   4
spark.kubernetes.container.image=registry/spark:4.3
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "TREBUCHET_SPARK_CONF_FILE"
# These are set elsewhere, or would change the numbers of reports.
RESERVED = {
    "spark.master": "set TREBUCHET_SPARK_MASTER instead",
    "spark.remote": "set TREBUCHET_SPARK_MASTER instead",
    "spark.authenticate.secret": "set TREBUCHET_SPARK_SECRET_FILE instead",
    "spark.sql.session.timeZone": "days and minutes are counted in UTC",
}
_LINE = re.compile(r"(?P<name>[^\s=]+)(?:\s*=\s*|\s+)(?P<value>.*\S)")


def settings_of_operator(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings in the file that the environment names; empty if it names no file.

    Raises:
        ReportError: the file isn't readable, or a line isn't a Spark setting.
    """
    path = environment.get(VARIABLE, "").strip()
    if not path:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(
            f"{path}, which {VARIABLE} names, can't be read. It must be a text file that this "
            "user can read."
        ) from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        setting = _LINE.fullmatch(line.strip())
        if setting is None or not setting["name"].startswith("spark."):
            raise ReportError(
                f"{path}:{number} isn't a Spark setting. Write its name, which begins with "
                "spark., then a space, then its value."
            )
        if setting["name"] in RESERVED:
            why = RESERVED[setting["name"]]
            raise ReportError(f"{path}:{number} sets {setting['name']}: {why}.")
        found[setting["name"]] = setting["value"]
    return found
