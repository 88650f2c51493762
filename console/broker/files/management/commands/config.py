"""`manage.py config export|plan|apply|drift`: configurations as files, for Git and pipelines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from console.broker.files.changing import changed_of
from console.broker.files.documents import (
    SECTIONS,
    drift_of,
    entries_by_broker,
    plans_of,
    read_document,
    yaml_of,
)
from console.broker.files.entries import FileProblemsError
from console.broker.files.planning import apply_one, shown
from console.broker.files.services import masters
from console.gateway.errors import GatewayError
from console.people.audit.record import change_by_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.core.management.base import CommandParser

    from console.broker.configs.plan import Plan
    from console.broker.files.documents import Drift
    from console.broker.files.planning import Shown
    from console.gateway.files import ConfigFile

DIFFERS = 2
USAGE = 2
FAILED = 1
MARKS = {"create": "+", "change": "~", "delete": "-"}
EPILOG = (
    "Exit codes: 0 no differences (apply: all changes applied), 2 differences found, "
    "1 error. FILE is YAML as `config export` writes it, a broker's "
    "topics.json, subscriptionGroup.json, consumerOffset.json, delayOffset.json or "
    "consumerFilter.json, or - for standard input."
)


class Command(BaseCommand):
    """Exports configurations, compares brokers with a file, and applies a file."""

    help = "Export broker configurations to a file, compare brokers with a file, or apply a file"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_differing = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.epilog = EPILOG
        what = parser.add_subparsers(dest="what", required=True)
        every = {
            "export": "write topics, groups and filters as YAML",
            "plan": "show the changes to match FILE; exit with 2 if there are any",
            "apply": "change the brokers to match FILE",
            "drift": "show differences between masters; exit with 2 if there are any",
        }
        for name, text in every.items():
            each = what.add_parser(name, help=text, description=text, epilog=EPILOG)
            each.add_argument(
                "--broker",
                action="append",
                metavar="NAME",
                help="use only this master; can be repeated (default: all registered masters)",
            )
            if name == "export":
                each.add_argument(
                    "--output", type=Path, help="output file (default: standard output)"
                )
                each.add_argument(
                    "--delays",
                    action="store_true",
                    help="include delay level offsets; applying them later moves the levels back",
                )
                continue
            each.add_argument("--json", action="store_true", help="print JSON")
            if name == "drift":
                continue
            each.add_argument("file", metavar="FILE")
            each.add_argument(
                "--whole",
                action="store_true",
                help="delete topics and groups that FILE doesn't name",
            )
            if name == "apply":
                each.add_argument(
                    "--reason",
                    default="",
                    help="reason, stored in the file's versions and the audit log",
                )
                each.add_argument(
                    "--accept-costs",
                    action="store_true",
                    help="accept consequences that `plan` marks with !, including lost messages",
                )

    def run_from_argv(self, argv: list[str]) -> None:
        """Run; replace argparse's exit code for wrong usage, which also means "differs"."""
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            if end.code == USAGE and not self._is_differing:
                sys.exit(FAILED)
            raise

    def handle(self, *args: Any, what: str, broker: list[str] | None, **options: Any) -> None:
        try:
            names = chosen(broker)
            if what == "export":
                self._export(names, options["output"], with_delays=options["delays"])
            elif what == "drift":
                self._drift(names, as_json=options["json"])
            else:
                plans = self._plans(options["file"], names, is_whole=options["whole"])
                if what == "plan":
                    self._plan(plans, as_json=options["json"])
                else:
                    self._apply(plans, options)
        except GatewayError as error:
            raise CommandError(f"{error.what} {error.advice}".strip()) from error

    def _export(self, names: Sequence[str], output: Path | None, *, with_delays: bool) -> None:
        text = yaml_of(names, with_delays=with_delays)
        if output is None:
            self.stdout.write(text, ending="")
            return
        try:
            output.write_text(text)
        except OSError as error:
            raise CommandError(f"Can't write {output}: {error.strerror}.") from error

    def _plans(self, file: str, names: Sequence[str], *, is_whole: bool) -> list[Plan]:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"Can't read {file}: {error}.") from error
        try:
            return plans_of(read_document(text), names, is_whole=is_whole)
        except FileProblemsError as error:
            said = [
                f"{file}:{each.line}: {each.text}" if each.line else f"{file}: {each.text}"
                for each in error.problems
            ]
            raise CommandError("\n".join(said)) from error

    def _plan(self, plans: Sequence[Plan], *, as_json: bool) -> None:
        every = [shown(plan, entries_max=sys.maxsize) for plan in plans]
        self._show(every, as_json=as_json)
        if every:
            self._end_as_differing()

    def _apply(self, plans: Sequence[Plan], options: dict[str, Any]) -> None:
        every = [shown(plan, entries_max=sys.maxsize) for plan in plans]
        self._show(every, as_json=options["json"])
        if any(each.refusals for each in every):
            raise CommandError(
                "Nothing was changed, because some changes aren't possible (see above)."
            )
        if any(each.costs for each in every) and not options["accept_costs"]:
            raise CommandError(
                "Nothing was changed. To accept the consequences marked with !, add --accept-costs."
            )
        for each in every:
            entry = apply_one(change_by_command, each, options["reason"])
            if not options["json"]:
                self.stdout.write(f"applied: {each.plan.name} (audit entry {entry.pk})")

    def _drift(self, names: Sequence[str], *, as_json: bool) -> None:
        every = [(file, entries_by_broker(file, names)) for file in SECTIONS.values()]
        found = [(file, list(entries), drift_of(file, entries)) for file, entries in every]
        if as_json:
            self.stdout.write(json.dumps(drift_json(names, found), indent=2, ensure_ascii=False))
        else:
            for file, telling, drifts in found:
                self._show_drift(file, telling, drifts)
        if any(drifts for _file, _telling, drifts in found):
            self._end_as_differing()

    def _show_drift(self, file: ConfigFile, names: Sequence[str], drifts: Sequence[Drift]) -> None:
        self.stdout.write(f"{file}: {len(drifts)} different" if drifts else f"{file}: identical")
        for drift in drifts:
            missing = f" (missing on {', '.join(drift.missing)})" if drift.missing else ""
            self.stdout.write(f"  {drift.name}{missing}")
            for key, values in drift.rows:
                each = " ".join(
                    f"{name}={json.dumps(value)}"
                    for name, value in zip(names, values, strict=True)
                    if value is not None
                )
                self.stdout.write(f"    {key}: {each}")

    def _show(self, every: Sequence[Shown], *, as_json: bool) -> None:
        if as_json:
            text = {"differs": bool(every), "plans": [plan_json(each) for each in every]}
            self.stdout.write(json.dumps(text, indent=2, ensure_ascii=False))
            return
        if not every:
            self.stdout.write("no differences")
        for each in every:
            counts = ", ".join(f"{count} {verb}" for verb, count in each.counts.items())
            self.stdout.write(f"{each.plan.name}: {counts}")
            for line in plan_lines(each.plan):
                self.stdout.write(f"  {line}")
            for said in (*each.refusals, *each.costs):
                self.stdout.write(f"  ! {said}")

    def _end_as_differing(self) -> None:
        self._is_differing = True
        self.stdout.flush()
        sys.exit(DIFFERS)


def chosen(asked: list[str] | None) -> list[str]:
    """Return the masters to use."""
    known = masters()
    missing = sorted(set(asked or ()) - set(known))
    if missing:
        raise CommandError(
            f"No master named {missing[0]} is registered. Registered: {', '.join(known)}."
        )
    if not known:
        raise CommandError("No broker is registered with the name server.")
    return [name for name in known if asked is None or name in asked]


def plan_lines(plan: Plan) -> list[str]:
    lines = []
    for verb, names in changed_of(plan).items():
        for name in names:
            lines.append(f"{MARKS[verb]} {name}")
            now, wanted = plan.now.get(name) or {}, plan.wanted[name] or {}
            if verb == "delete":
                continue
            for key, value in wanted.items():
                if verb == "create":
                    lines.append(f"    {key}: {json.dumps(value)}")
                elif now.get(key) != value:
                    lines.append(f"    {key}: {json.dumps(now.get(key))} -> {json.dumps(value)}")
    return lines


def plan_json(each: Shown) -> dict[str, Any]:
    plan = each.plan
    return {
        "broker": each.broker_name,
        "file": str(each.file),
        "changes": [
            {
                "entry": name,
                "action": verb,
                "before": plan.now.get(name),
                "after": plan.wanted[name],
            }
            for verb, names in changed_of(plan).items()
            for name in names
        ],
        "costs": list(each.costs),
        "refusals": list(each.refusals),
    }


def drift_json(
    names: Sequence[str], found: Sequence[tuple[ConfigFile, list[str], list[Drift]]]
) -> dict[str, Any]:
    return {
        "differs": any(drifts for _file, _telling, drifts in found),
        "brokers": list(names),
        "files": {
            str(file): [
                {
                    "entry": drift.name,
                    "missing": list(drift.missing),
                    "values": {
                        key: dict(zip(telling, values, strict=True)) for key, values in drift.rows
                    },
                }
                for drift in drifts
            ]
            for file, telling, drifts in found
        },
    }
