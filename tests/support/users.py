"""Tests that need root, and processes of an ordinary user."""

import os
import pwd

import pytest

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def reachable(tmp_path):
    """The test's directory, open to others."""
    folder = tmp_path
    while folder != folder.parent and folder.stat().st_uid == os.getuid():
        folder.chmod(folder.stat().st_mode | 0o055)
        folder = folder.parent
        if str(folder) == "/tmp":
            break
    return tmp_path


def ordinary():
    """Makes a process that is root become an ordinary user."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
