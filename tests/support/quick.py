"""Chooses the tests of `./test quick`: those that need no program of others and do not take long.

A test needs a program if its code, or that of its fixtures and their helpers, has the name."""

import re
import types
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
# Compilers, Git and what Debian has on every machine.
ASSUMED = {"gcc", "git", "unshare", "ip"}


@cache
def programs():
    """The commands that `./test` installs."""
    script = (TESTS.parent / "test").read_text()
    commands = re.findall(r"^need (\S+)", script, re.M) + re.findall(r"command -v (\S+)", script)
    others = {"cargo", "docker", "fastcgi", "go", "java", "nghttp", "npm", "php-fpm", "rustc", "wrk"}
    return (others | set(commands)) - ASSUMED


# Modules that take long.
SLOW = {
    "test_changes", "test_connections", "test_hostile_scripts", "test_hostile_stores", "test_http3_hostile", "test_http3_network", "test_load", "test_load_http3", "test_load_machines",
    "test_load_text", "test_load_verdicts", "test_memory", "test_object_root_failures", "test_proxy_dns", "test_proxy_failures",
    "test_reload_applications", "test_response_cache_scripts", "test_stopped_workers", "test_upgrade", "test_uploads",
    "test_websocket_cases", "test_websocket_end", "test_wsgi",
}


def is_quick(item):
    """Whether a test belongs to `./test quick`."""
    marks = item.get_closest_marker("serial") or item.get_closest_marker("paced")
    return not marks and item.module.__name__ not in SLOW and not is_foreign(item)


def is_foreign(item):
    """Whether a test needs such a program."""
    definitions = item._fixtureinfo.name2fixturedefs
    functions = [item.function, *(d.func for ds in definitions.values() for d in ds)]
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    classes = [p if isinstance(p, type) else type(p) for p in parameters if not isinstance(p, str)]
    # Examples and packages are files.
    is_file = item.module.__name__.startswith(("test_book", "test_confinement", "test_packaging", "test_recipes"))
    return is_file or any(mentions(p) for p in parameters) or any(names_program(f) for f in (*functions, *classes))


@cache
def names_program(function):
    """Whether a function names a program, or calls one of the tests' functions that does."""
    waiting, seen = [function], set()
    while waiting:
        this = waiting.pop()
        if isinstance(this, type):
            waiting += [v for v in vars(this).values() if isinstance(v, types.FunctionType)]
            continue
        if not isinstance(this, types.FunctionType) or this.__code__ in seen or not is_ours(this):
            continue
        seen.add(this.__code__)
        constants, names = contents(this.__code__)
        if any(mentions(constant) for constant in constants):
            return True
        for name in names:
            value = this.__globals__.get(name)
            if isinstance(value, types.ModuleType) and str(getattr(value, "__file__", "")).startswith(str(TESTS)):
                waiting += [getattr(value, n) for n in names if hasattr(value, n)]
            elif isinstance(value, (str, list, tuple)):
                if any(mentions(v) for v in ([value] if isinstance(value, str) else value)):
                    return True
            else:
                waiting.append(value)
    return False


def is_ours(function):
    return function.__code__.co_filename.startswith(str(TESTS))


def contents(code):
    """The constants and the names of a function and of those inside it."""
    constants, names = [], list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner_constants, inner_names = contents(constant)
            constants += inner_constants
            names += inner_names
        elif isinstance(constant, tuple):
            constants += constant
        else:
            constants.append(constant)
    return constants, names


def mentions(constant):
    if not isinstance(constant, str):
        return False
    return constant.split(" ")[0].rsplit("/", 1)[-1] in programs() or re.search(r"\.(php|pl)\b", constant) is not None
