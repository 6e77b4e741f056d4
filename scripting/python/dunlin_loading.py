"""Shared by the application servers for Python: loads the application, and reports the loaded files."""

import ast
import importlib
import os
import sys

# Maximum length of a report in bytes.
MOST = 512 * 1024


def load(name):
    """Loads the application `name`: `module:application`, or `module:factory(arguments)`, whose arguments
    are literals."""
    module, _, text = name.partition(":")
    found = importlib.import_module(module)
    names, parenthesis, _ = text.partition("(")
    for attribute in names.strip().split("."):
        found = getattr(found, attribute)
    if parenthesis:
        call = ast.parse(text.strip(), mode="eval").body
        values = [ast.literal_eval(argument) for argument in call.args]
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        found = found(*values, **named)
    if not callable(found):
        raise TypeError("%s is not an application: %r" % (name, found))
    return found


def loaded_files(most=MOST):
    """The files of all loaded modules, each ended by a NUL, as far as they fit into a report."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    report = bytearray()
    for file in files:
        if isinstance(file, str) and file:
            path = os.fsencode(os.path.abspath(file)) + b"\0"
            if len(report) + len(path) <= most:
                report += path
    return bytes(report)
