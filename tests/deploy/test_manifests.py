"""What deploys a mesh is well formed: checked by the tools that whoever deploys it would use."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.mesh_process import BIN, ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "hopline"
KUBERNETES = "1.31"
# Sets of values that people choose: the least, everything, and all secrets made by others.
VALUES: dict[str, dict[str, Any]] = {
    "least": {"database": {"url": "postgresql://hopline:secret@postgres:5432/hopline"}},
    "everything": {
        "database": {"url": "postgresql://hopline:secret@postgres:5432/hopline"},
        "publicUrl": "https://mesh.example.org",
        "consoleUrl": "https://console.example.org",
        "env": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "HOPLINE_MAX_CONNECTIONS": 500},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "gatewayHost": "mesh.example.org",
            "consoleHost": "console.example.org",
            "tlsSecret": "certificates",
        },
        "workers": {"from": [{"namespaceSelector": {"matchLabels": {"workers": "yes"}}}]},
        "monitoring": {"from": [{"podSelector": {}}], "serviceMonitor": True},
        "services": {"gateway": {"replicas": 5}, "console": {"replicas": 3}},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "mesh", "operator": "Exists"}],
    },
    "secrets": {
        "database": {"existingSecret": "database"},
        "tokens": {"existingSecret": "tokens"},
        "tls": {"existingSecret": "certificates"},
        "networkPolicy": {"enabled": False},
        "admin": {"enabled": False},
    },
}


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def rendered(folder: Path, values: dict[str, Any]) -> list[Any]:
    """Return the manifests of the chart, as helm itself renders them."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = run(BIN / "helm", "template", "mesh", CHART, "--values", file, "--kube-version", KUBERNETES)
    assert done.returncode == 0, done.stderr
    (folder / "manifests.yaml").write_text(done.stdout)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.fixture(params=VALUES)
def manifests(request: pytest.FixtureRequest, tmp_path: Path) -> list[Any]:
    return rendered(tmp_path, VALUES[request.param])


def pods(manifests: Sequence[Any]) -> list[tuple[str, Any]]:
    return [
        (each["metadata"]["name"], each["spec"]["template"]["spec"])
        for each in manifests
        if each["kind"] in ("Deployment", "StatefulSet", "Job")
    ]


def test_every_manifest_is_what_kubernetes_takes(manifests: list[Any], tmp_path: Path) -> None:
    known = [each for each in manifests if each["kind"] != "ServiceMonitor"]  # the operator's own kind
    file = tmp_path / "known.yaml"
    file.write_text(yaml.safe_dump_all(known))
    done = run(BIN / "kubernetes-validate", "--strict", "--kubernetes-version", KUBERNETES, file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_itself_has_nothing_to_say(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES["everything"]))
    done = run(BIN / "helm", "lint", "--strict", CHART, "--values", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_process_is_root_or_can_write_to_its_image(manifests: list[Any]) -> None:
    for name, pod in pods(manifests):
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        for container in pod["containers"]:
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"] is True, name
            assert allowed["allowPrivilegeEscalation"] is False, name
            assert allowed["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name


def test_probes_tell_what_lives_from_what_serves(manifests: list[Any]) -> None:
    for name, pod in pods(manifests):
        (container,) = pod["containers"]
        if name.endswith(("-migrate", "-admin")):
            continue
        alive, serves = container["livenessProbe"], container["readinessProbe"]
        assert alive.get("httpGet", {}).get("path", "/healthz") == "/healthz"
        assert serves.get("httpGet", {}).get("path", "/readyz") == "/readyz"
        assert alive != serves


def test_no_secret_stands_in_a_container(manifests: list[Any]) -> None:
    secrets = [each for each in manifests if each["kind"] == "Secret"]
    others = json.dumps([each for each in manifests if each["kind"] != "Secret"])
    assert "secret@postgres" not in others
    for each in secrets:
        for value in (*each.get("data", {}).values(), *each.get("stringData", {}).values()):
            assert value not in others


def test_each_service_is_called_by_those_alone_that_have_to(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, VALUES["everything"])
    policies = {
        each["metadata"]["name"]: each["spec"]["ingress"][0]
        for each in manifests
        if each["kind"] == "NetworkPolicy"
    }
    callers = {
        name: rule["from"][0]["podSelector"]["matchExpressions"][0]["values"]
        for name, rule in policies.items()
        if "from" in rule
    }
    assert callers == {
        "mesh-registry": ["quota", "relay", "gateway", "console", "admin"],
        "mesh-quota": ["relay", "gateway", "console", "admin"],
        "mesh-relay": ["relay", "gateway", "console", "admin"],
    }
    assert policies["mesh-relay"]["from"][1] == VALUES["everything"]["workers"]["from"][0]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "database"),
        ({"database": {"url": "mysql://x"}}, "database.url"),
        ({**VALUES["least"], "services": {"quota": {"replicas": 2}}}, "replicas"),
        ({**VALUES["least"], "imagee": {}}, "imagee"),
    ],
)
def test_values_that_cannot_work_are_refused(tmp_path: Path, values: dict[str, Any], told: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = run(BIN / "helm", "template", "mesh", CHART, "--values", file)
    assert done.returncode != 0
    assert told in done.stderr


def test_the_chart_has_the_version_of_everything_else() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = (ROOT / "VERSION").read_text().strip()
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_compose_takes_the_file() -> None:
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_has_nothing_to_say_of_the_image() -> None:
    done = run(BIN / "hadolint", DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not on this machine; CI's has it")
    units = sorted((DEPLOY / "systemd").glob("*.service"))
    assert len(units) == 3
    for unit in units:
        # Where the program is on the machine it is for; here it is elsewhere.
        text = unit.read_text()
        assert "ExecStart=/opt/hopline/bin/hopline " in text
        (tmp_path / unit.name).write_text(text.replace("/opt/hopline/bin/hopline", str(BIN / "hopline")))
    done = run("systemd-analyze", "verify", *sorted(tmp_path.glob("*.service")))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for unit in units:
        exposed = run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
        assert exposed.returncode == 0, exposed.stdout
