"""Print the software bill of materials of the appliance, as a CycloneDX 1.6 document (JSON).

It has the locked Python packages, the libraries that the console serves, the Java archives inside
the installed PySpark, and the Debian packages that deploy/up installs. Nothing is downloaded:
licences are those of installed packages. SOURCE_DATE_EPOCH sets the time of the document, which is
otherwise the same for the same checkout and machine.

Source: https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import uuid
import zipfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from analytics.java import PACKAGE as JAVA_PACKAGE
from deploy.install.requirements import BUILD, CONNECT, OTLP, REDIS, ROOT, RUN, UV, entries
from deploy.machine import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from email.message import Message

    from deploy.install.requirements import Entry

Component = dict[str, Any]

VENDORED = ROOT / "console" / "static" / "console" / "vendor"
APPLICATION = "trebuchet"
SCOPES = {
    RUN: "required",
    REDIS: "optional",
    OTLP: "optional",
    CONNECT: "optional",
    BUILD: "excluded",
    UV: "excluded",
}
DEBIAN_PACKAGES = (redis_server.PACKAGE, JAVA_PACKAGE)
CLASSIFIED = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX IDs of the classifiers that name one licence."""
SPDX = frozenset({"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "0BSD"})
LICENCE_CHARS_MAX = 100


def document(now: datetime) -> dict[str, Any]:
    """Return the whole document; raise OSError if a file of the checkout is missing."""
    # A package may be locked twice, each version with a marker; the first lock counts.
    python = {
        purl_of(entry): (entry, scope)
        for lock, scope in reversed(SCOPES.items())
        for entry in entries(lock)
    }
    components = [
        *(package(entry, scope) for entry, scope in python.values()),
        *vendored(),
        *archives(),
        *debian(),
    ]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    application = {
        "type": "application",
        "bom-ref": APPLICATION,
        "name": APPLICATION,
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    body = {
        "metadata": {
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "deploy/sbom"}]},
            "component": application,
        },
        "components": components,
        "dependencies": dependencies([entry for entry, _ in python.values()], components),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **body,
    }


def package(entry: Entry, scope: str) -> Component:
    """Describe a locked package; any of its hashes may be the installed file's."""
    files = {
        "type": "distribution",
        "url": f"https://pypi.org/simple/{entry.name}/",
        "comment": "a file with any of these hashes is installed",
        "hashes": [{"alg": "SHA-256", "content": each} for each in entry.hashes],
    }
    return {
        "type": "library",
        "bom-ref": purl_of(entry),
        "name": entry.name,
        "version": entry.version,
        "scope": scope,
        "purl": purl_of(entry),
        "externalReferences": [files],
        **licences(entry.name),
        **({"properties": [{"name": "marker", "value": entry.marker}]} if entry.marker else {}),
    }


def purl_of(entry: Entry) -> str:
    return f"pkg:pypi/{entry.name}@{quote(entry.version)}"


def licences(name: str) -> dict[str, Any]:
    """Return the licences that an installed package declares; {} if unknown."""
    try:
        found: Message = metadata.metadata(name)  # type: ignore[assignment]
    except metadata.PackageNotFoundError:
        return {}
    expression = found.get("License-Expression")
    if expression:
        return {"licenses": [{"expression": expression}]}
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in found.get_all("Classifier") or []
        if each.startswith("License :: ")
    ]
    stated = (found.get("License") or "").strip()
    if not classifiers and stated and "\n" not in stated and len(stated) <= LICENCE_CHARS_MAX:
        classifiers = [stated]
    return {"licenses": [licence(text) for text in classifiers]} if classifiers else {}


def licence(text: str) -> dict[str, Any]:
    known = CLASSIFIED.get(text, text if text in SPDX else None)
    return {"license": {"id": known} if known else {"name": text}}


def vendored() -> Iterator[Component]:
    """Describe the third-party libraries that the console serves, with the files' hashes."""
    files: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for line in (VENDORED / "vendor.lock").read_text().splitlines():
        if not line.startswith("#"):
            file, name, version, terms, _, digest = line.split()
            files.setdefault((name, version, terms), []).append((file, digest))
    for (name, version, terms), found in files.items():
        yield {
            "type": "library",
            "bom-ref": f"pkg:npm/{name}@{version}",
            "name": name,
            "version": version,
            "scope": "required",
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{version}",
            "licenses": [{"license": {"id": terms}}],
            "components": [
                {
                    "type": "file",
                    "name": os.path.normpath(VENDORED.relative_to(ROOT) / file),
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                }
                for file, digest in found
            ],
        }


def archives() -> Iterator[Component]:
    """Describe the Java archives of the installed PySpark, by their Maven metadata."""
    try:
        installed = metadata.distribution("pyspark")
    except metadata.PackageNotFoundError:
        return
    for path in sorted(Path(str(installed.locate_file("pyspark"))).glob("jars/*.jar")):
        name, version = split_archive_name(path.stem)
        group, name, version = maven_of(path, name, version)
        yield {
            "type": "library",
            "bom-ref": f"jar:{path.name}",
            **({"group": group} if group else {}),
            "name": name,
            "version": version,
            "scope": "required",
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
            **({"purl": f"pkg:maven/{group}/{name}@{quote(version)}"} if group else {}),
        }


def split_archive_name(stem: str) -> tuple[str, str]:
    """Split NAME-VERSION where the version begins with a digit."""
    match = re.fullmatch(r"(.+?)-(\d.*)", stem)
    return (match[1], match[2]) if match else (stem, "")


def maven_of(path: Path, name: str, version: str) -> tuple[str, str, str]:
    """Return group, artifact and version; the group is empty if the archive doesn't state it."""
    with zipfile.ZipFile(path) as archive:
        notes = [each for each in archive.namelist() if each.endswith("/pom.properties")]
        for note in notes:
            text = archive.read(note).decode("utf-8", "replace")
            table = dict(
                line.strip().split("=", 1)
                for line in text.splitlines()
                if "=" in line and not line.startswith("#")
            )
            # Archives that bundle others have their metadata, too.
            if table.get("artifactId") == name and table.get("version") and table.get("groupId"):
                return table["groupId"], name, table["version"]
    return "", name, version


def debian() -> Iterator[Component]:
    """Describe the Debian packages that run next to the Python ones, if they are installed."""
    query = shutil.which("dpkg-query")
    for name in DEBIAN_PACKAGES if query else ():
        done = subprocess.run(
            [str(query), "--show", "--showformat", "${Status}\t${Version}\t${Architecture}", name],
            capture_output=True,
            text=True,
        )
        status, _, rest = done.stdout.partition("\t")
        if done.returncode == 0 and status.endswith(" installed"):
            version, _, architecture = rest.partition("\t")
            purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}"
            yield {
                "type": "application",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "scope": "optional",
                "purl": purl,
            }


def dependencies(python: Sequence[Entry], components: Sequence[Component]) -> list[dict[str, Any]]:
    """Return the dependencies of each component, from the Python locks and PySpark's archives."""
    refs = {entry.name: purl_of(entry) for entry in python}
    needs: dict[str, set[str]] = {APPLICATION: set()}
    for entry in python:
        needs.setdefault(purl_of(entry), set())
        for other in entry.wanted_by:
            needs.setdefault(refs.get(other, APPLICATION), set()).add(purl_of(entry))
    for component in components:
        ref = component["bom-ref"]
        if ref not in needs:
            owner = refs["pyspark"] if ref.startswith("jar:") else APPLICATION
            needs[owner].add(ref)
    return [{"ref": ref, "dependsOn": sorted(found)} for ref, found in sorted(needs.items())]


def main(arguments: Sequence[str]) -> int:
    if arguments:
        sys.stderr.write(f"usage: deploy/sbom > trebuchet.cdx.json\n\n{__doc__}")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    sys.stdout.write(json.dumps(document(now), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
