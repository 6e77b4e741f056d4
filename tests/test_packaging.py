"""Packages: units, the Debian package, the container image, archives, and the workflow that builds them."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import urllib.request

import pytest
import yaml

from support.files import write
from support.packaging import BUILD, PACKAGING, beneath, build, configurations, libraries, runnable, stripped
from support.server import DUNLIN, ROOT, Server
from support.tls import certificate
from support.waiting import wait_until


def have(command):
    return pytest.mark.skipif(not shutil.which(command), reason=f"there is no {command} here")


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root only: other users cannot change the root directory")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("file", configurations(), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_every_configuration_is_accepted_without_warnings(file, tmp_path):
    copy = tmp_path / "dunlin.toml"
    # Another user has no access to the test's directory.
    text = beneath(tmp_path, file.read_text()).replace('user = "www-data"\n', "")
    copy.write_text(text.replace('"/etc/dunlin/', f'"{tmp_path}/etc/dunlin/'))
    (tmp_path / "srv/app/app.py").write_text("def application(environ, start_response): ...\n")
    write(tmp_path / "srv/flask/app.py", "def app(environ, start_response): ...\n")
    (tmp_path / "etc/dunlin").mkdir(parents=True)
    run(DUNLIN, "passwd", tmp_path / "etc/dunlin/users", "ann", input="secret\n")
    certificate(tmp_path / "etc/dunlin", "example.com", ("example.com",))
    (tmp_path / "srv/www/404.html").touch()
    done = subprocess.run([DUNLIN, "check", "-c", copy], capture_output=True, text=True, timeout=20)
    warnings = [line for line in done.stderr.splitlines() if "scripts run as root" not in line]
    assert done.returncode == 0 and not warnings, done.stderr


def test_the_book_quotes_the_files():
    # The page may have the line for editors or not.
    chapter, schema = (ROOT / "docs/src/running.md").read_text(), re.compile(r"^#:schema .*\n", re.M)
    for file in (*PACKAGING.glob("systemd/*"), ROOT / "examples/https.toml"):
        assert f"\n{schema.sub('', file.read_text())}```\n" in schema.sub("", chapter), f"running.md does not quote {file.name} as it is"


def test_the_directories_of_the_service_are_those_of_tmpfiles():
    unit = dict(re.findall(r"^(\w+)=(.*)$", (PACKAGING / "systemd/dunlin.service").read_text(), re.M))
    lines = [line.split() for line in (PACKAGING / "tmpfiles.d/dunlin.conf").read_text().splitlines() if line[0] == "d"]
    assert {path: (mode, user) for _, path, mode, user, _ in lines} == {
        f"/run/{unit['RuntimeDirectory']}": ("0755", unit["User"]),
        f"/var/lib/{unit['StateDirectory']}": (unit["StateDirectoryMode"], unit["User"]),
        f"/var/cache/{unit['CacheDirectory']}": (unit["CacheDirectoryMode"], unit["User"]),
        f"/var/log/{unit['LogsDirectory']}": (unit["LogsDirectoryMode"], unit["User"]),
    }


@have("logrotate")
def test_the_server_writes_to_a_new_log_after_logrotate(tmp_path):
    config = tmp_path / "dunlin.toml"
    config.write_text(runnable(tmp_path, (PACKAGING / "debian/dunlin.toml").read_text()))
    server = Server(["-c", config], tmp_path)
    try:
        log = tmp_path / "var/log/dunlin/access.log"
        server.get("/first")
        wait_until(lambda: log.exists() and "/first" in log.read_text(), "the first line")
        rules = (PACKAGING / "logrotate.d/dunlin").read_text().replace("/var/log", f"{tmp_path}/var/log")
        user, group = run("id", "-un").strip(), run("id", "-gn").strip()
        (tmp_path / "rules").write_text(rules.replace("su dunlin dunlin", f"su {user} {group}"))
        run("logrotate", "--force", "--state", tmp_path / "state", tmp_path / "rules")
        assert "/first" in log.with_suffix(".log.1").read_text()

        def reopened():
            server.get("/second")
            return log.exists() and "/second" in log.read_text()

        wait_until(reopened, "the new log")
    finally:
        server.kill()


@pytest.mark.skipif(not shutil.which("cargo-deb"), reason="there is no cargo-deb here; the release workflow builds the package")
@have("dpkg")
def test_the_debian_package_is_installed_upgraded_and_removed(tmp_path):
    build(tmp_path / "out", "deb", binary=stripped(tmp_path))
    [package] = (tmp_path / "out").glob("*.deb")
    root = tmp_path / "root"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    # Maintainer scripts run outside of the root directory, with DPKG_ROOT.
    dpkg = ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--force-not-root", "--log=/dev/null", "--path-include=/*"]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    fields = run("dpkg-deb", "--field", package, "Depends", "Section", "Maintainer")
    assert "libc6" in fields and "systemd-sysusers" in fields and "Section: httpd" in fields

    run(*dpkg, "--install", package, env=environment)
    user = re.search(r"^dunlin:.*", (root / "etc/passwd").read_text(), re.M)[0].split(":")
    assert user[5:] == ["/var/lib/dunlin", "/usr/sbin/nologin"]
    enabled = root / "etc/systemd/system/multi-user.target.wants/dunlin.service"
    assert enabled.is_symlink() and not (root / "etc/systemd/system/sockets.target.wants").exists()
    for file in (
        "usr/bin/dunlin", "usr/share/man/man1/dunlin-serve.1.gz", "usr/share/man/man5/dunlin.toml.5.gz",
        "usr/share/bash-completion/completions/dunlin", "usr/share/zsh/vendor-completions/_dunlin",
        "usr/share/fish/vendor_completions.d/dunlin.fish", "usr/share/dunlin/dunlin.schema.json",
        "usr/lib/systemd/system/dunlin.service", "usr/lib/systemd/system/dunlin.socket", "etc/logrotate.d/dunlin",
        "usr/share/doc/dunlin/copyright", "usr/share/doc/dunlin/examples/https.toml",
    ):
        assert (root / file).exists(), file
    if os.geteuid() == 0:
        for directory, mode in (("var/lib/dunlin", 0o40700), ("var/cache/dunlin", 0o40700), ("var/log/dunlin", 0o40750)):
            status = (root / directory).stat()
            assert (status.st_mode, status.st_uid) == (mode, int(user[2])), directory

    config = root / "etc/dunlin/dunlin.toml"
    here = root / "here.toml"
    here.write_text(runnable(root, config.read_text()))
    server = Server(["-c", here], root, program=root / "usr/bin/dunlin")
    try:
        assert b"Dunlin is installed" in server.get("/")[2]
    finally:
        server.kill()

    config.write_text(config.read_text() + "# changed\n")
    run(*dpkg, "--install", package, env=environment)
    assert config.read_text().endswith("# changed\n") and enabled.is_symlink()
    run(*dpkg, "--remove", "dunlin", env=environment)
    assert config.exists() and not (root / "usr/bin/dunlin").exists() and (root / "var/log/dunlin").exists()
    run(*dpkg, "--purge", "dunlin", env=environment)
    for left in ("etc/dunlin", "var/lib/dunlin", "var/cache/dunlin", "var/log/dunlin", "usr/share/dunlin", "etc/logrotate.d/dunlin"):
        assert not (root / left).exists(), left
    assert not os.path.lexists(enabled)


def instructions():
    text = re.sub(r"^#.*\n", "", (PACKAGING / "container/Containerfile").read_text(), flags=re.M)
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line]


def test_the_container_file_starts_the_server():
    of = {}
    for name, arguments in instructions():
        of.setdefault(name, []).append(arguments)
    assert set(of) == {"FROM", "COPY", "USER", "EXPOSE", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    program, arguments = json.loads(of["ENTRYPOINT"][0]), json.loads(of["CMD"][0])
    assert program == ["/usr/bin/dunlin"] and arguments == ["serve", "--config", "/etc/dunlin/dunlin.toml"]
    configuration = tomllib.loads((PACKAGING / "container/dunlin.toml").read_text())
    assert [listen["address"] for listen in configuration["listen"]] == [f":{port}" for port in of["EXPOSE"]]
    assert f'"--admin", "{configuration["server"]["admin"]}"' in of["HEALTHCHECK"][0]
    compose = yaml.safe_load((PACKAGING / "container/compose.yaml").read_text())["services"]["web"]
    targets = [volume.split(":")[1] for volume in compose["volumes"]] + compose["tmpfs"]
    assert {"/srv/www", *of["VOLUME"], "/run/dunlin"} <= set(targets)
    assert compose["ports"] == [f"80:{of['EXPOSE'][0]}"]


@as_root
def test_the_server_runs_with_the_files_of_the_image_only(tmp_path):
    """As in a container: its root directory, another user, the command line and the health check of the image."""
    context = build(tmp_path / "out", "rootfs") / "container"
    of, root = dict(instructions()), tmp_path / "root"
    for name, arguments in instructions():
        if name == "COPY":
            *options, source, target = arguments.split()
            run("chown", "-R", options[0].removeprefix("--chown=") if options else "root:root", context / source)
            run("cp", "-a", f"{context / source}/.", f"{root}{target}")
    libraries(root / "usr/bin/dunlin", root)
    config = root / "etc/dunlin/dunlin.toml"
    config.write_text(re.sub(r'":8080"', '"127.0.0.1:0"', config.read_text()))
    tmp_path.chmod(0o755)
    within = ["chroot", f"--userspec={of['USER']}", str(root)]
    process = subprocess.Popen(
        [*within, *json.loads(of["ENTRYPOINT"]), *json.loads(of["CMD"])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), process.stderr.read()
        with urllib.request.urlopen(url, timeout=15) as response:
            assert b"Dunlin is installed" in response.read()
        run(*within, *json.loads(of["HEALTHCHECK"].split("CMD ")[1]))
    finally:
        process.terminate()
        _, error = process.communicate(timeout=20)
    assert process.returncode == 0 and "WARN" not in error, error


def builder():
    """A program that can build images here."""
    for name in ("docker", "podman", "buildah"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
            return name
    return None


STATIC = sorted(ROOT.glob("target/*-linux-musl/*/dunlin"))


@pytest.mark.skipif(not builder(), reason="there is no builder of images here")
@pytest.mark.skipif(not STATIC, reason="there is no static binary here; packaging/build.sh --target builds one")
def test_the_image_is_built(tmp_path):
    build(tmp_path, "container", binary=STATIC[0])


def test_the_archive_is_complete_and_the_same_each_time(tmp_path):
    # A program that does as the binary does, and is small.
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nexec {DUNLIN} "$@"\n')
    program.chmod(0o755)
    archives = []
    for name in ("first", "second"):
        out = build(tmp_path / name, "tarball", "checksums", binary=program)
        [archive] = out.glob("*.tar.gz")
        assert archive.name in (out / "SHA256SUMS").read_text()
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=out)
        archives.append(archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        assert {member.uid for member in archive} == {0}
    for name in (
        "bin/dunlin", "share/man/man5/dunlin.toml.5.gz", "share/dunlin/systemd/dunlin.service", "share/dunlin/dunlin.schema.json",
        "share/dunlin/examples/https.toml", "LICENSE-MIT", "README.md", "etc/dunlin/dunlin.toml",
    ):
        assert name in names, name


def metadata():
    return json.loads(run("cargo", "metadata", "--no-deps", "--offline", "--format-version=1", cwd=ROOT))["packages"]


def test_the_crates_have_complete_metadata():
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    for package in metadata():
        if package["publish"] == []:
            continue
        assert package["version"] == version
        for key in ("description", "license", "readme", "keywords", "categories", "rust_version"):
            assert package[key], f"{package['name']} has no {key}"
    # What `cargo install --path crates/cli` installs.
    [program] = [package for package in metadata() if package["name"] == "dunlin"]
    assert [target["name"] for target in program["targets"] if "bin" in target["kind"]] == ["dunlin"]
    assert program["manifest_path"] == str(ROOT / "crates/cli/Cargo.toml")


def test_the_files_of_the_debian_package_exist():
    manifest = tomllib.loads((ROOT / "crates/cli/Cargo.toml").read_text())
    for source, _, _ in manifest["package"]["metadata"]["deb"]["assets"]:
        if "target/" not in source:
            assert list((ROOT / "crates/cli").glob(source)), source


def test_the_version_of_a_release_is_checked(tmp_path):
    (tmp_path / "packaging").mkdir()
    script = shutil.copy(PACKAGING / "check-version.sh", tmp_path / "packaging")
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.3"\n')
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## [1.2.3] - 2030-01-01\n- New.\n\n## [1.2.2]\n- Old.\n")
    assert run(script, "--notes", "v1.2.3").strip() == "- New."
    for tag, text in (("v1.2.4", changes.read_text()), ("v1.2.3", "## [1.2.2]\n- Old.\n")):
        changes.write_text(text)
        done = subprocess.run([script, tag], capture_output=True, text=True)
        assert done.returncode == 1 and "1.2.3" in done.stderr


def test_the_workflow_uses_what_exists():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    commands = []
    for name, job in workflow["jobs"].items():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(workflow["jobs"]), name
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            commands += re.findall(r"packaging/\S+\.sh.*", step.get("run", ""))
    assert len(commands) >= 6
    parts = set(re.findall(r"^([a-z]+)\(\) [{(]$", BUILD.read_text(), re.M))
    built = set()
    for command in commands:
        script, *words = command.split()
        assert os.access(ROOT / script, os.X_OK), script
        if script == "packaging/build.sh":
            words = re.sub(r"--train|--(target|binary) (\$\{\{.*?\}\}\S*|\S+)", "", " ".join(words)).split()
            assert set(words) <= parts, command
            built |= set(words)
    assert {"deb", "tarball", "container", "book", "sbom", "checksums"} <= built


@have("shellcheck")
def test_the_scripts_are_without_findings():
    scripts = [*PACKAGING.glob("*.sh"), *PACKAGING.glob("debian/p*")]
    assert len(scripts) >= 5
    run("shellcheck", *scripts)


@have("openssl")
def test_the_training_of_a_build_finds_everything_in_place(tmp_path):
    # Without instrumentation, the same loads run and leave no profile.
    environment = {**os.environ, "DURATION": "200ms", "TMPDIR": str(tmp_path)}
    done = subprocess.run([PACKAGING / "train.sh", DUNLIN], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^status +20[06]: ", done.stdout, re.M)) >= 20
    assert not list(tmp_path.iterdir())


@have("apparmor_parser")
def test_the_apparmor_profile_is_valid():
    done = subprocess.run(["apparmor_parser", "-Q", "-K", "-S", PACKAGING / "apparmor/dunlin"], capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout, done.stderr


def expressions():
    """Every expression of the alerts and of the dashboard."""
    rules = yaml.safe_load((PACKAGING / "prometheus/alerts.yml").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((PACKAGING / "grafana/dunlin.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries = [variable["query"]["query"] for variable in dashboard["templating"]["list"] if isinstance(variable["query"], dict)]
    assert len(alerts) >= 10 and len(panels) >= 20
    return alerts + panels + queries + [notes["expr"] for notes in dashboard["annotations"]["list"]]


def test_the_metrics_of_alerts_and_dashboard_exist(serve):
    server = serve(
        route='throttle = { max_concurrent = 9 }\nlimit = { requests = "1000/s" }',
        more='[[site.route]]\npath = "/status/*"\nstatus = true\n',
    )
    server.get("/x")

    def metrics():
        text = server.get("/status/metrics")[2].decode()
        return text if 'http_route="/*"' in text.split("dunlin_request_phase")[0] else None

    text = wait_until(metrics, "the request in the metrics")
    samples = re.findall(r"^(\w+)(?:\{(.*)\})? ", re.sub(r"^#.*\n", "", text, flags=re.M), re.M)
    names = {name for name, _ in samples} | set(re.findall(r"^# TYPE (\w+) ", text, re.M))
    labels = {label for _, found in samples for label in re.findall(r"(\w+)=\"", found or "")}
    labels |= {"job", "instance", "class", "pool", "file"}
    used = set()
    for expression in expressions():
        used |= set(re.findall(r"\b(?:dunlin|http_server|process)_\w+", re.sub(r"\{.*?\}", "", expression)))
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            assert set(re.findall(r"\w+", grouping)) <= labels, expression
        for matchers in re.findall(r"\{(.*?)\}", expression):
            assert set(re.findall(r"(\w+)(?:=~|!=|=|!~)\"", matchers)) <= labels, expression
    used -= {"dunlin_site"}
    assert len(used) >= 20 and used <= names, used - names


@have("promtool")
def test_the_expressions_of_the_dashboard_are_valid(tmp_path):
    def plain(expression):
        return re.sub(r"\$(?:__)?\w+", "5m", expression)

    rules = [{"record": f"panel:{n}", "expr": plain(text)} for n, text in enumerate(expressions()) if "label_values" not in text]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run("promtool", "check", "rules", tmp_path / "rules.yml")


@have("promtool")
def test_the_alerts_fire():
    run("promtool", "check", "rules", "alerts.yml", cwd=PACKAGING / "prometheus")
    run("promtool", "test", "rules", "alerts.test.yml", cwd=PACKAGING / "prometheus")


def test_the_commands_of_the_install_chapter_are_accepted(tmp_path):
    text = (ROOT / "docs/src/install.md").read_text()
    lines = [line for block in re.findall(r"^```(?:sh|text)\n(.*?)^```", text, re.S | re.M) for line in block.splitlines()]
    parts = [line for line in lines if line.startswith("packaging/build.sh ")]
    known = set(re.findall(r"^([a-z]+)\(\) [{(]$", BUILD.read_text(), re.M))
    for line in parts:
        assert set(re.sub(r"--train|--target \S+", "", line).split()[1:]) <= known, line
    own = [line.replace("/usr/local", f"{tmp_path}/local") for line in lines if line.startswith("dunlin ")]
    (tmp_path / "dunlin.toml").write_text(runnable(tmp_path, (ROOT / "examples/cgi.toml").read_text()))
    for directory in (".local/share/bash-completion/completions", ".config/fish/completions", "local/share/zsh/site-functions"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "dunlin").symlink_to(DUNLIN)
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for line in own:
        run("bash", "-ec", line, cwd=tmp_path, env=environment)
    assert len(parts) >= 3 and len(own) >= 6
    assert (tmp_path / "local/share/man/man5/dunlin.toml.5").exists() and (tmp_path / "dunlin.schema.json").exists()
