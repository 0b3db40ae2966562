"""Which system user runs the server: Postgres refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

SERVICE = "memstore"


class Switch(TypedDict, total=False):
    """The arguments by which `subprocess` runs a program as another user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """A system user other than the current one."""

    name: str
    uid: int
    gid: int


def switch(account: Account | None) -> Switch:
    """Return the arguments that run a program as the account, or none for the current user."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def account_for(folder: Path, cluster: Path) -> Account | None:
    """Choose who runs the server of a data folder; None means the current user.

    Only root has a choice: the cluster's owner where there is one, else the folder's owner,
    else the system user ``memstore``, which is made if missing, else ``nobody``.
    """
    if os.geteuid() != 0:
        return None
    for path in (cluster, folder):
        if path.exists() and (owner := path.stat()).st_uid != 0:
            return Account(_name(owner.st_uid), owner.st_uid, owner.st_gid)
    return _service_account()


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _service_account() -> Account:
    for attempt in range(3):
        found = _named(SERVICE)
        if found:
            return found
        if not shutil.which("useradd"):
            break
        time.sleep(0.2 * attempt)  # Another process may hold the lock on /etc/passwd.
        subprocess.run(
            ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SERVICE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
    found = _named(SERVICE) or _named("nobody")
    return found or Account("nobody", 65534, 65534)


def _named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name, entry.pw_uid, entry.pw_gid)
