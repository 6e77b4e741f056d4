#!/usr/bin/env python3
"""Writes the plain manifests from the chart, by `helm template`.

    packaging/kubernetes/render.py            writes them
    packaging/kubernetes/render.py --check    fails if one is not up to date
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
# Helm assumes an old version of Kubernetes where there is none.
COMMAND = ["template", "dunlin", FOLDER / "chart", "--kube-version", "1.33"]


def manifests(helm):
    """The text of each file of manifests."""
    text = subprocess.run([helm, *COMMAND], check=True, stdout=subprocess.PIPE, text=True).stdout
    files = {}
    for document in re.split(r"^---\n", text, flags=re.M):
        found = re.match(r"# Source: dunlin/templates/(\S+)\n", document)
        if not found:
            continue
        lines = document[found.end() :].splitlines()
        kept = [line.rstrip() for line in lines if "managed-by: Helm" not in line]
        files.setdefault(found[1], []).append("\n".join(kept).strip() + "\n")
    return {name: "---\n".join(documents) for name, documents in files.items()}


def main(arguments):
    helm = shutil.which("helm")
    if not helm:
        sys.exit("helm is not installed")
    stale = []
    for name, text in manifests(helm).items():
        file = FOLDER / "manifests" / name
        if file.exists() and file.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            file.write_text(text)
    if stale and "--check" in arguments:
        sys.exit(f"not up to date: {', '.join(stale)}; run packaging/kubernetes/render.py")


if __name__ == "__main__":
    main(sys.argv[1:])
