"""Hashes in users' files whose verification would take too much memory or time."""

import base64
import subprocess

import pytest

from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

DIGEST = "YWJjZGVmZ2g$YWJjZGVmZ2hpamtsbW5vcA"
BCRYPT = "CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
COSTLY = {
    "argon2 memory": f"$argon2id$v=19$m=4294967295,t=1,p=1${DIGEST}",
    "argon2 passes": f"$argon2id$v=19$m=64,t=4294967295,p=1${DIGEST}",
    "argon2i": f"$argon2i$v=19$m=2097152,t=1,p=1${DIGEST}",
    "bcrypt": f"$2b$31${BCRYPT}",
    "SHA-crypt": "$6$rounds=999999999$saltsalt$"
    "TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
}


def passwd(file, name, word):
    command = [DUNLIN, "passwd", "--algorithm", "sha512", file, name]
    subprocess.run(command, input=word.encode(), check=True, capture_output=True)


def credentials(name, word):
    return "Authorization: Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()


def configuration(tmp_path, site):
    file = tmp_path / "dunlin.toml"
    file.write_text(
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n'
        f'[[site.route]]\npath = "/*"\nauth = {{ basic = "users" }}\n'
    )
    return file


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize("kind", COSTLY)
def test_a_costly_hash_is_reported_with_its_line_before_the_server_serves(tmp_path, site, kind, command):
    (tmp_path / "users").write_text(f"# staff\nann:{COSTLY[kind]}\n")
    file = configuration(tmp_path, site)
    done = subprocess.run([DUNLIN, command, "--config", file], capture_output=True, text=True)
    assert done.returncode == 1
    assert "dunlin.toml:7:18" in done.stderr and 'users:2: user "ann"' in done.stderr
    assert "than allowed" in done.stderr


def test_a_costly_hash_in_a_changed_file_keeps_the_previous_users(serve, tmp_path, site):
    write(site / "x.txt", "x")
    users = tmp_path / "users"
    passwd(users, "ann", "a")
    server = serve(route=f'auth = {{ basic = "{users}" }}')
    # The file changes before the first login: the users were read at the start.
    good = users.read_text()
    users.write_text(f"{good}eve:{COSTLY['argon2 memory']}\n")
    assert server.get("/x.txt", credentials("ann", "a"))[0] == 200
    assert server.get("/x.txt", credentials("eve", "e"))[0] == 401
    assert 'users:2: user "eve"' in server.logged("the previous users stay in use")
    passwd(users, "eve", "e")
    wait_until(lambda: server.get("/x.txt", credentials("eve", "e"))[0] == 200, "eve's new password")
