"""Which system user runs the server: Postgres refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from contextlib import suppress
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
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(f"with id {owner.st_uid}", owner.st_uid, owner.st_gid)
    if (uid := folder.stat().st_uid) != 0:
        # An owner from outside a container has no name there, without which initdb won't work.
        with suppress(KeyError):
            return _account(pwd.getpwuid(uid))
    return _service_account()


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _service_account() -> Account:
    for name in (SERVICE, SERVICE, "nobody"):
        with suppress(KeyError):
            return _account(pwd.getpwnam(name))
        if name == SERVICE and shutil.which("useradd"):
            subprocess.run(
                ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=30,
            )
    return Account("nobody", 65534, 65534)
