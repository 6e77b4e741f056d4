"""The program that the generated pages describe."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def dunlin():
    """The path of the program."""
    if "DUNLIN" in os.environ:
        return os.environ["DUNLIN"]
    for profile in ("checked", "release"):
        file = ROOT / "target" / profile / "dunlin"
        if file.exists():
            return str(file)
    raise SystemExit("there is no dunlin in target/; run cargo build --workspace --all-features --profile checked --bin dunlin")


def output(*arguments):
    """What the program prints, 100 columns wide."""
    environment = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(
        ["dunlin", *arguments], executable=dunlin(), check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return done.stdout


def sources(*folders):
    """The sources of crates, without their tests, by path."""
    for folder in folders:
        for file in sorted((ROOT / "crates" / folder / "src").rglob("*.rs")):
            if "tests" not in file.parts and "testing" not in file.parts and file.name != "tests.rs":
                yield file, file.read_text().split("\n#[cfg(test)]\nmod tests {")[0]
