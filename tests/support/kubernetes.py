"""Manifests as Kubernetes decodes them."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "kubernetes"


@functools.cache
def program():
    """The program that decodes manifests into the types of the API, built with Go."""
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if not go:
        return None, "go is not installed"
    target = Path(tempfile.gettempdir()) / f"dunlin-kubernetes-{os.getuid()}"
    target.mkdir(mode=0o700, exist_ok=True)
    # Processes that build at the same time do not disturb each other: Go replaces the file at once.
    built = subprocess.run([go, "build", "-o", target / "manifests", "."], cwd=FOLDER, capture_output=True, text=True)
    return (target / "manifests", None) if built.returncode == 0 else (None, built.stderr.strip()[-300:])


def names(text):
    """The kinds and names of the objects in manifests, which must have no unknown fields."""
    binary, reason = program()
    if not binary:
        pytest.skip(f"the types of the Kubernetes API cannot be had: {reason}")
    done = subprocess.run([binary], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
