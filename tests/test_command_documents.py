"""Completions and manual pages, which are made from the definitions of the command line and of the configuration."""

import json
import os
import re
import shutil
import subprocess

import pytest

from support.server import DUNLIN


def have(command):
    return pytest.mark.skipif(not shutil.which(command), reason=f"there is no {command} here")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def commands():
    """The commands in the help."""
    section = run(DUNLIN, "--help").split("Commands:\n")[1].split("\n\n")[0]
    names = re.findall(r"^  ([a-z-]+)", section, re.M)
    assert {"serve", "check", "load", "completions", "man"} <= set(names)
    return [name for name in names if name != "help"]


@pytest.fixture
def completions(tmp_path):
    """Writes the completions of a shell to a file."""

    def write(shell):
        file = tmp_path / f"completions.{shell}"
        file.write_text(run(DUNLIN, "completions", shell))
        return file

    return write


@pytest.mark.parametrize(
    "line, expected, unexpected",
    [
        ("dunlin ", ["serve", "check", "completions"], ["launch"]),
        ("dunlin ch", ["check"], ["serve"]),
        ("dunlin serve --th", ["--threads"], ["--config"]),
        ("dunlin completions ", ["bash", "zsh", "fish"], ["serve"]),
        ("dunlin passwd --algorithm b", ["bcrypt"], ["argon2id"]),
        ("dunlin check --config dun", ["dunlin.toml"], ["other.toml"]),
    ],
)
def test_bash_completes(completions, tmp_path, line, expected, unexpected):
    file = completions("bash")
    for name in ("dunlin.toml", "other.toml"):
        (tmp_path / name).touch()
    # What bash does when a user presses the key of completion at the end of the line.
    code = """
    source "$1"
    COMP_LINE=$2 COMP_POINT=${#2}
    read -ra COMP_WORDS <<<"$2"
    [[ $2 == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    specification=($(complete -p dunlin))
    for ((n = 0; n < ${#specification[@]}; n++)); do
        [ "${specification[n]}" = -F ] && function=${specification[n + 1]}
    done
    "$function" dunlin "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    offered = run("bash", "--norc", "-c", code, "bash", file, line, cwd=tmp_path).split()
    assert set(expected) <= set(offered) and not set(unexpected) & set(offered), offered


@have("zsh")
def test_the_completions_of_zsh_are_valid(completions):
    file = completions("zsh")
    run("zsh", "-n", file)
    # The function is defined, and registered for the command.
    code = 'autoload -U compinit; compinit -D; source "$1"; print -r -- $_comps[dunlin]; whence -w _dunlin'
    assert run("zsh", "-f", "-c", code, "zsh", file).split() == ["_dunlin", "_dunlin:", "function"]


@have("fish")
def test_fish_completes(completions, tmp_path):
    file = completions("fish")
    environment = {**os.environ, "HOME": str(tmp_path)}
    run("fish", "--no-execute", file, env=environment)
    offered = run("fish", "--no-config", "-c", f"source {file}; complete -C 'dunlin ch'; complete -C 'dunlin serve --th'", env=environment)
    assert [line.split("\t")[0] for line in offered.splitlines()] == ["check", "--threads"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    output = run(DUNLIN, "man", folder)
    files = {file.name: file for file in folder.glob("man[15]/*")}
    assert output.startswith(f"wrote {len(files)} pages to ")
    return files


def rendered(page):
    """A page as `man` shows it, with blanks between words."""
    text = run("groff", "-Kutf8", "-man", "-Tutf8", "-P-cbou", "-rLL=10000n", page)
    return re.sub(r"\s+", " ", text.replace("‐", "-").replace("−", "-"))


def test_each_command_has_a_page(pages):
    assert set(pages) == {"dunlin.1", "dunlin.toml.5", *(f"dunlin-{name}.1" for name in commands())}
    assert run(DUNLIN, "man") == pages["dunlin.1"].read_text()


@have("groff")
def test_pages_have_what_the_help_has(pages):
    for name in commands():
        page = rendered(pages[f"dunlin-{name}.1"])
        text = run(DUNLIN, name, "--help", env={**os.environ, "COLUMNS": "10000"})
        for option in re.findall(r"^ {2,6}(?:-\w, |    )?(--[\w-]+)", text, re.M):
            assert option in page, f"{option} of {name}"
        for block, title in (("Examples:\n", "EXAMPLES"), ("Exit status: ", "EXIT STATUS")):
            assert (block in text) == (f" {title} " in page), (name, title)
    whole = rendered(pages["dunlin.1"])
    assert all(f"dunlin-{name}(1)" in whole for name in commands())
    assert "dunlin serve public serve the directory" in whole


@have("groff")
def test_the_page_of_the_configuration_has_every_key(pages):
    page = rendered(pages["dunlin.toml.5"])
    schema = json.loads(run(DUNLIN, "check", "--schema"))
    keys = 0
    for definition in schema["$defs"].values():
        for key, value in definition.get("properties", {}).items():
            keys += 1
            description = re.sub(r"\s+", " ", value["description"]).replace("`", "")
            assert re.search(rf" {key} = \S", page) and description in page, key
    assert keys > 150
    for header in ("[server]", "[server.cache]", "[[listen]]", "[[site]]", "[[site.route]]", "[site.tls.acme]", "[site.route.script]"):
        assert f" {header} " in page, header
    assert 'a size such as "256KB" or "1MiB"' in page and '"zstd"' in page


@have("groff")
def test_groff_has_no_warnings(pages):
    for file in pages.values():
        done = subprocess.run(["groff", "-Kutf8", "-man", "-ww", "-Tutf8", "-z", file], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr


@have("mandoc")
def test_mandoc_has_no_warnings(pages):
    for file in pages.values():
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", file], capture_output=True, text=True)
        # The pages have no date: the same source gives the same pages.
        findings = [line for line in done.stdout.splitlines() if "missing date" not in line]
        assert not findings, findings


@have("man")
def test_man_finds_the_pages(pages):
    folder = pages["dunlin.1"].parent.parent
    environment = {**os.environ, "MANPATH": str(folder), "MANPAGER": "cat", "MANWIDTH": "100"}
    for name, title in (("dunlin-serve", "dunlin-serve(1)"), ("dunlin.toml", "dunlin.toml(5)")):
        assert title in run("man", name, env=environment)


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    done = subprocess.run([DUNLIN, "man", tmp_path / "file"], capture_output=True, text=True)
    assert done.returncode == 1 and f"{tmp_path}/file/man1: Not a directory" in done.stderr
