"""The part of deploy/up that runs as root, before it continues as another user: deploy.commands.up.

It installs missing packages, creates the user, hands over the data directory, drops root and
becomes the appliance. If that user can't reach the checkout, its Python, the data directory or the
broker's configuration, the appliance stays root and reports it, unless TREBUCHET_USER requests the
user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from deploy.commands import up as appliance
from deploy.install.requirements import ROOT
from deploy.install.virtualenv import VENV
from deploy.machine import data_directory, fonts, java, redis_server
from deploy.machine.handover import HandoverError, hand_over, require_ours
from deploy.processes.supervision import OPEN_FILES_TARGET
from deploy.settings import options, secret_files
from deploy.terminal.output import complain, say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.settings.options import Options

ROOT_USER = "root"


class UserError(Exception):
    """The appliance can't run as the user; the text is one sentence without a full stop."""


def find_or_create(name: str) -> pwd.struct_passwd:
    """Return the account with this name; create the appliance's own account if it is missing.

    Raises:
        UserError: the account doesn't exist.
    """
    try:
        return pwd.getpwnam(name)
    except KeyError:
        if name != options.DEFAULT_USER:
            sentence = translated(
                "the user {name} doesn't exist (--user, TREBUCHET_USER)", name=name
            )
            raise UserError(sentence) from None
    try:
        subprocess.run(options.USER_COMMAND, capture_output=True, text=True, check=False)
        user = pwd.getpwnam(name)
    except (OSError, KeyError):
        sentence = translated("useradd couldn't create the user {name}", name=name)
        raise UserError(sentence) from None
    say(translated("Created the system user {name}.", name=name))
    return user


def require_reachable(user: pwd.struct_passwd, asked: Options) -> None:
    """Check that the user can read all code and reach the data.

    Raises:
        UserError: the user can't.
    """
    groups = {*os.getgrouplist(user.pw_name, user.pw_gid)}
    wanted = [
        (ROOT, translated("the checkout")),
        (Path(sys.executable).resolve(), translated("its Python")),
        (Path(sys.base_prefix).resolve(), translated("its Python")),
        (asked.data.parent, translated("the data directory")),
    ]
    for path, what in wanted:
        _require(path, what, user, groups)
    if asked.broker_file is not None and asked.broker_file.exists():
        _require(asked.broker_file.parent, translated("the broker's configuration"), user, groups)
        if not _may(asked.broker_file, user, groups, read=True):
            raise UserError(
                translated(
                    "the user {name} can't read {file}; run chown {name} {file}",
                    name=user.pw_name,
                    file=asked.broker_file,
                )
            )
    if not _can_import(user):
        # Root may have created the environment with a private umask.
        _open(VENV.resolve())
        if not _can_import(user):
            raise UserError(
                translated(
                    "the user {name} can't read all of {root}; run chmod -R a+rX on it",
                    name=user.pw_name,
                    root=ROOT,
                )
            )


def become(user: pwd.struct_passwd) -> None:
    """Drop root for good."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_TARGET:
        # Even root may not raise the limit in a container.
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, OPEN_FILES_TARGET))
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.environ |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}


def prepare(user: pwd.struct_passwd, asked: Options) -> None:
    """Do the work that needs root: install packages, hand over the data directory.

    Raises:
        HandoverError: the data directory must not be handed over.
        NotStartedError: another appliance uses it, or it can't be created.
    """
    require_ours(asked.data, user.pw_uid)
    before = os.umask(0o022)
    try:
        # The user must be able to traverse the parent directories.
        asked.data.parent.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)
    java.install()
    fonts.install()
    if asked.redis_url is None:
        redis_server.install()
    with data_directory.lock(asked.data):
        links = hand_over(asked.data, user.pw_uid, user.pw_gid)
    for link in links:
        if link.exists() and link.stat().st_uid != user.pw_uid:
            complain(
                translated(
                    "WARNING {link} is a symbolic link, and its target doesn't belong to "
                    "{name}. If it is the appliance's, run chown -hR {name}: {there}",
                    link=link,
                    name=user.pw_name,
                    there=link.resolve(),
                )
            )


def start_appliance(arguments: Sequence[str], secrets: Mapping[str, str]) -> NoReturn:
    """Become the appliance."""
    secret_files.pass_on(secrets, os.environ)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "deploy.commands.up", *arguments])


def main(arguments: Sequence[str]) -> int:
    secrets = secret_files.take(os.environ)
    os.umask(0o077)
    try:
        asked = options.parse(arguments, {**os.environ, **secrets})
        try:
            user = find_or_create(asked.user or options.DEFAULT_USER)
            require_reachable(user, asked)
        except UserError as error:
            sentence = str(error)
            if asked.user is not None:
                complain(translated("Not started as {user}: {why}.", user=asked.user, why=sentence))
                return appliance.NOT_STARTED
            complain(
                translated(
                    "WARNING everything runs as root: {why}. Fix this, or set "
                    "TREBUCHET_USER=root to run as root on purpose.",
                    why=sentence,
                )
            )
            start_appliance(arguments, secrets)
        if user.pw_uid != 0:
            prepare(user, asked)
            become(user)
            say(
                translated(
                    "Started as root: everything runs as the user {name} from here on.",
                    name=user.pw_name,
                )
            )
    except (options.OptionError, HandoverError, data_directory.NotStartedError) as error:
        complain(str(error))
        return appliance.NOT_STARTED
    start_appliance(arguments, secrets)


def _require(path: Path, what: str, user: pwd.struct_passwd, groups: set[int]) -> None:
    """Check that the user may enter all existing directories on the way to a path."""
    for each in reversed([path, *path.parents]):
        if each.is_dir() and not _may(each, user, groups, read=False):
            mode = stat.S_IMODE(each.stat().st_mode)
            raise UserError(
                translated(
                    "the user {name} can't reach {what} at {path}, because {each} has mode "
                    "{mode:04o}: move it to another directory, such as /opt/trebuchet",
                    name=user.pw_name,
                    what=what,
                    path=path,
                    each=each,
                    mode=mode,
                )
            )


def _may(path: Path, user: pwd.struct_passwd, groups: set[int], *, read: bool) -> bool:
    """Return whether the mode of a file lets the user read it, or of a directory enter it."""
    status = path.stat()
    bit = 0o4 if read else 0o1
    if status.st_uid == user.pw_uid:
        return bool(status.st_mode & bit << 6)
    return bool(status.st_mode & (bit << 3 if status.st_gid in groups else bit))


def _can_import(user: pwd.struct_passwd) -> bool:
    """Return whether the user can run the appliance's code, because modes aren't sufficient."""
    done = subprocess.run(
        [sys.executable, "-c", "import deploy.commands.up, django, pyspark, broker_core.broker"],
        cwd=ROOT,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return done.returncode == 0


def _open(directory: Path) -> None:
    """Make root's files below a directory readable by everybody, and executable if root may run
    them.
    """
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode) and status.st_uid == 0:
            more = 0o044 | (0o011 if status.st_mode & 0o100 else 0)
            path.chmod(stat.S_IMODE(status.st_mode) | more)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
