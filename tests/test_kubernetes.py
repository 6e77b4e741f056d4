"""Manifests and chart for Kubernetes, and the sum of replicas that SRV records name."""

import os
import re
import shutil
import subprocess

import pytest
import yaml

from support import kubernetes
from support.dns import A, NameServer, SRV
from support.files import write
from support.server import DUNLIN, ROOT

FOLDER = ROOT / "packaging" / "kubernetes"
PROGRAMS = f"{os.environ['PATH']}:{os.environ.get('GOBIN', os.path.expanduser('~/go/bin'))}"
HELM = shutil.which("helm", path=PROGRAMS)
KUBECONFORM = shutil.which("kubeconform", path=PROGRAMS)
OBJECTS = {
    "apps/v1 Deployment dunlin",
    "autoscaling/v2 HorizontalPodAutoscaler dunlin",
    "policy/v1 PodDisruptionBudget dunlin",
    "v1 ConfigMap dunlin",
    "v1 Service dunlin",
    "v1 Service dunlin-replicas",
}


def documents():
    files = sorted((FOLDER / "manifests").glob("*.yaml"))
    return "\n---\n".join(file.read_text() for file in files)


def by_kind(text):
    return {f"{document['kind']} {document['metadata']['name']}": document for document in yaml.safe_load_all(text) if document}


@pytest.fixture
def helm():
    if not HELM:
        pytest.skip("helm is not installed")

    def template(*arguments):
        command = [HELM, "template", "dunlin", FOLDER / "chart", "--kube-version", "1.33", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return template


def test_manifests_are_objects_of_the_api():
    assert set(kubernetes.names(documents())) == OBJECTS


def test_fields_that_the_api_does_not_have_are_found():
    text = documents().replace("maxUnavailable: 1", "maxUnavailible: 1")
    with pytest.raises(AssertionError, match="maxUnavailible"):
        kubernetes.names(text)


@pytest.mark.skipif(not KUBECONFORM, reason="kubeconform is not installed")
def test_kubeconform_accepts_the_manifests():
    done = subprocess.run([KUBECONFORM, "-strict", "-summary", "-"], input=documents(), capture_output=True, text=True, timeout=120)
    if "failed downloading schema" in done.stdout + done.stderr:
        pytest.skip("the schemas of kubeconform cannot be fetched")
    assert done.returncode == 0, done.stdout


def test_manifests_are_those_of_the_chart(helm):
    path = f"{os.environ['PATH']}:{os.path.dirname(HELM)}"
    done = subprocess.run([FOLDER / "render.py", "--check"], capture_output=True, text=True, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stderr


def test_the_chart_is_sound_and_follows_its_values(helm, tmp_path):
    lint = subprocess.run([HELM, "lint", "--strict", FOLDER / "chart"], capture_output=True, text=True)
    assert lint.returncode == 0, lint.stdout
    more = '[[site.route]]\npath = "/api/*"\nproxy = "http://api:80"\n'
    values = write(tmp_path / "values.yaml", yaml.safe_dump({"more": more, "env": [{"name": "A", "value": "1"}], "tolerations": [{"key": "x"}]}))
    text = helm("--values", values, "--set", "autoscaling.enabled=false,replicas=7,drainSeconds=3,stopSeconds=4")
    assert set(kubernetes.names(text)) == {name for name in OBJECTS if "Autoscaler" not in name}
    objects = by_kind(text)
    deployment = objects["Deployment dunlin"]["spec"]
    assert deployment["replicas"] == 7 and deployment["template"]["spec"]["terminationGracePeriodSeconds"] == 12
    assert objects["ConfigMap dunlin"]["data"]["dunlin.toml"].rstrip().endswith(more.rstrip())


def test_the_configuration_serves_and_the_probes_find_it_ready(serve, site, tmp_path):
    write(site / "index.html", "front")
    objects = by_kind(documents())
    text = objects["ConfigMap dunlin"]["data"]["dunlin.toml"]
    text = text.replace("/srv/www", str(site)).replace("/run/dunlin/admin.sock", f"{tmp_path}/admin").replace(':8080"', '127.0.0.1:0"')
    server = serve(text=text)
    pod = objects["Deployment dunlin"]["spec"]["template"]["spec"]
    container, follower = pod["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        assert server.get(container[probe]["httpGet"]["path"])[0] == 200
    live = [word.replace("/run/dunlin/admin.sock", f"{tmp_path}/admin") for word in container["livenessProbe"]["exec"]["command"]]
    assert subprocess.run([DUNLIN, *live[1:]], capture_output=True, timeout=30).returncode == 0
    assert server.get("/")[2] == b"front"
    # 127.0.0.1 is not one of the networks that may read the status.
    assert server.get("/status/metrics")[0] == 403
    assert subprocess.run([DUNLIN, *follower["args"], "--help"], capture_output=True).returncode == 0
    assert pod["terminationGracePeriodSeconds"] > 10 + 30
    metrics = objects["HorizontalPodAutoscaler dunlin"]["spec"]["metrics"]
    names = [metric["pods"]["metric"]["name"] for metric in metrics if metric["type"] == "Pods"]
    rule = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]["custom"][0]
    assert names == [rule["name"]["as"]] and f"`{names[0]}`" in (ROOT / "docs/src/metrics.md").read_text()


STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\nallow = ["127.0.0.1"]\n'


@pytest.fixture
def fleet(serve):
    """Two servers that SRV records name, and the options by which `dunlin top` finds them."""
    servers = [serve(more=STATUS), serve(more=STATUS)]
    names = NameServer()
    names.records[("_http._tcp.web.test", SRV)] = [(0, 1, server.port, f"r{n}.web.test") for n, server in enumerate(servers)]
    for n in range(2):
        names.records[(f"r{n}.web.test", A)] = ["127.0.0.1"]
    return servers, names, ["--once", "--fleet", "_http._tcp.web.test", "--resolver", names.address]


def top(*arguments, code=0):
    done = subprocess.run([DUNLIN, "top", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_replicas_that_srv_records_name_are_added_up(fleet, site):
    write(site / "a.txt", "a")
    servers, _, options = fleet
    for server, count in zip(servers, (3, 4)):
        for _ in range(count):
            server.get("/a.txt")
    text = top(*options).stdout
    assert text.startswith("replicas     2 of 2\n")
    assert re.search(r"^route +default \(site\): .* 7 requests", text, re.M), text
    # Both processes have memory.
    one = top("--once", "--admin", f"{servers[0].url}/status/").stdout
    mega = lambda text: float(re.search(r"([\d.]+) MB of memory", text)[1])  # noqa: E731
    assert mega(text) > 1.5 * mega(one)


def test_a_replica_that_does_not_respond_is_named_and_the_others_are_shown(fleet):
    servers, names, options = fleet
    servers[1].kill()
    done = top(*options, code=1)
    assert "replicas     1 of 2" in done.stdout and f"127.0.0.1:{servers[1].port}: the server is not reached" in done.stderr
    names.records.clear()
    assert "_http._tcp.web.test" in top(*options, code=1).stderr
    assert "cannot be used with" in top(*options, "--admin", "x", code=2).stderr
