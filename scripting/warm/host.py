"""Prepares one Python script, and runs it once for each request, in a process of its own.

What is done before `os.fork` is done once: the interpreter starts, modules of the standard library
that the script imports are loaded, and the script is compiled, which runs nothing of it. `os.fork`
returns only in the processes that the preloaded library makes for requests (preload.c), and from
there on everything is as if the interpreter had been started with the script.
"""

import sys

# Modules that read the environment, the directory or the arguments when they are loaded, or have
# other visible effects.
NOT_PRELOADED = {"__main__", "antigravity", "concurrent", "idlelib", "lib2to3", "multiprocessing", "smtpd",
         "test", "this", "tkinter", "turtle", "turtledemo", "unittest", "wsgiref"}


def prepare(path, preload):
    """The script's code, or None if compiling it has warnings or errors, which each request then
    reports. Loads the allowed modules."""
    import _ast
    import warnings

    try:
        with open(path, "rb") as file:
            source = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = compile(source, path, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
            code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, Warning, MemoryError, RecursionError):
        return None
    for name in list(preload) + imported_modules(tree, path):
        try:
            __import__(name)
        except Exception as error:
            if name in preload:
                print(f"preload: {name}: {error}", file=sys.stderr)
    return code


def imported_modules(tree, path):
    """The modules of the standard library that the script imports at its top level. Others may read
    the environment, or have other effects, when they are loaded."""
    import _ast

    standard = getattr(sys, "stdlib_module_names", frozenset()) - NOT_PRELOADED
    # Files beside the script take precedence, also for modules that load others.
    folder = script_directory(path)
    if folder is None or not {entry.partition(".")[0] for entry in os.listdir(folder)}.isdisjoint(standard):
        return []
    names = []
    blocks = [tree.body]
    for block in blocks:
        for node in block:
            if isinstance(node, _ast.Import):
                names.extend(alias.name for alias in node.names)
            elif isinstance(node, _ast.ImportFrom) and not node.level:
                names.append(node.module)
            elif isinstance(node, _ast.Try):
                blocks.append(node.body)
    return [name for name in names if name.partition(".")[0] in standard]


def script_directory(path):
    """The first entry of `sys.path`; None with the options that omit it."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    return os.path.dirname(os.path.realpath(path))


def loaded_files():
    """The files of all loaded modules, one per line."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return "\n".join(file for file in files if file and file.startswith("/") and "\n" not in file)


def reopen_input(like):
    """Standard input as it is when the interpreter starts."""
    buffer = io.open(0, "rb", closefd=False)
    buffer.raw.name = "<stdin>"
    stream = io.TextIOWrapper(buffer, like.encoding, like.errors, None, like.line_buffering,
                              like.write_through)
    stream.mode = "r"
    return stream


def request():
    """The arguments and variables of this process."""
    message = os.read(99, PART)
    if len(message) == PART:
        message += os.read(99, MAX)
    os.close(99)
    fields = message.split(b"\0")
    count = int(fields[1])
    return fields[2 : 2 + count], fields[2 + count : -1]


def begin_request(own):
    """Sets the state of a newly started interpreter that `set_up` could not know."""
    arguments, variables = request()
    # The process has them already; this is the interpreter's own copy.
    environment = os.environ._data
    for variable in variables:
        name, _, value = variable.partition(b"=")
        environment[name] = value
    # The interpreter sets this itself if the locale is plain ASCII.
    for name, value in own:
        if name not in environment:
            environment[name] = value
            os.putenv(name, value)
    # Standard output and error are pipes here and in the fork server, so that the streams need no
    # change. Standard input is like the fork server's unless it is a pipe, which has no positions.
    try:
        os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        sys.stdin = sys.__stdin__ = reopen_input(sys.__stdin__)
    if arguments:
        arguments = [os.fsdecode(argument) for argument in arguments]
        sys.argv += arguments
        sys.orig_argv += arguments


def set_up(path, first):
    """The state that all processes of the script start with."""
    sys.argv = [path]
    sys.orig_argv = [*INTERPRETER, path]
    if first is not None:
        sys.path.insert(0, first)
    make_main(path)


def make_main(path):
    """The module that a script runs as. It has no other reference, so that its objects are released with it."""
    main = type(sys)("__main__")
    del main.__spec__
    space = main.__dict__
    space.update(__spec__=None, __annotations__={}, __builtins__=builtins, __file__=path,
                 __cached__=None, __loader__=LOADER("__main__", path))
    sys.modules["__main__"] = main


def run(code, path):
    """Runs the script as `__main__`. Returns its exit status."""
    try:
        if code is None:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, sys.modules["__main__"].__dict__)
        return 0
    except SystemExit as end:
        return status_of(end.code)
    except BaseException as error:
        # Without the frames of this file, which do not belong to the script.
        trace = error.__traceback__.tb_next
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        try:
            sys.excepthook(type(error), error, trace)
        except SystemExit as end:
            return status_of(end.code)
        if isinstance(error, KeyboardInterrupt):
            return None
        return 1


def status_of(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def end(status, preloaded):
    """Ends the process without finalizing the interpreter."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    if status is None:
        # Like the interpreter: ended by the signal that interrupted it.
        signal = __import__("signal")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finalize(status, preloaded)
    os._exit(status)


def finalize(status, preloaded):
    """Flushes the streams of the script."""
    flush(status)
    # Objects with finalizers: files that were not closed.
    release_modules(preloaded)
    flush(status)


def release_modules(preloaded):
    """Releases the modules that this process has loaded, in the interpreter's order: first together,
    and then one by one those that are still referenced."""
    if hasattr(sys, "last_type"):
        sys.last_type = sys.last_value = sys.last_traceback = None
    left = []
    for name in loaded_since(preloaded):
        module = sys.modules.pop(name, None)
        if isinstance(module, type(sys)):
            left.append(_weakref.ref(module))
        del module
    # A collection may close a file before the buffer above it is flushed.
    for value in gc.get_objects():
        if issubclass(type(value), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            try:
                value.flush()
            except Exception:
                pass
    value = None
    gc.collect()
    for reference in reversed(left):
        module = reference()
        if module is not None:
            clear(module.__dict__)
            del module
            gc.collect()


def loaded_since(preloaded):
    """The names of the modules that this process has loaded, without reading those of the fork
    server: reading a name writes to its page, which this process would then copy."""
    names = []
    for name in reversed(sys.modules):
        if name == LAST:
            break
        if name not in preloaded:
            names.append(name)
    names.append("__main__")
    names.reverse()
    return names


def clear(space):
    """Clears a module in the interpreter's order: names that begin with an underscore first."""
    for private in (True, False):
        for name in list(space):
            if name != "__builtins__" and isinstance(name, str) and (
                private == (name.startswith("_") and not name.startswith("__"))
            ):
                space[name] = None


def flush(status):
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception:
            # The interpreter prints the message and determines the status.
            raise SystemExit(status) from None


def rehearse(own, preloaded):
    """Repeats the work of a request until the interpreter has created everything that it creates on
    first or frequent use, so that no process has to. No state of it remains."""
    # Profilers, tracers and replaced output streams must not get events of this.
    if sys.gettrace() or sys.getprofile() or type(print) is not type(len):
        return
    kept = sys.stdout, sys.stderr, sys.modules["__main__"]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        message = os.memfd_create("rehearsal")
        os.write(message, b"\0".join([b"/", b"0", b"GATEWAY_INTERFACE=CGI/1.1", b"QUERY_STRING=", b""]))
        code = compile("print('Content-Type: text/plain\\n')", "<fork server>", "exec", dont_inherit=True)
        for _ in range(ROUNDS):
            os.lseek(message, 0, os.SEEK_SET)
            os.dup2(message, 99)
            rehearse_once(code, null, own, preloaded)
        os.close(message)
    finally:
        sys.stdout, sys.stderr, sys.modules["__main__"] = kept
        os.close(null)
        os.environ.clear()


def rehearse_once(code, null, own, preloaded):
    begin_request(own)
    sys.stdout = sys.stderr = io.open(null, "w", encoding="utf-8", closefd=False)
    name = "a module of the script"
    sys.modules[name] = type(sys)(name)
    make_main("<fork server>")
    finalize(run(code, None), preloaded)


def main():
    path, preload = os.environ["DUNLIN_WARM_SCRIPT"], os.environ["DUNLIN_WARM_PRELOAD"].split()
    before = set(os.environ["DUNLIN_WARM_OWN"].split())
    own = [(name, value) for name, value in os.environb.items()
           if name == b"LC_CTYPE" and "LC_CTYPE" not in before]
    # The first entry represents the script's directory, which `-c` replaces.
    first = script_directory(path)
    if first is not None:
        sys.path.pop(0)
    code = prepare(path, preload)
    files = loaded_files()
    os.environ.clear()
    sys.modules[LAST] = sys.modules.pop(LAST)
    preloaded = frozenset(sys.modules) - {"__main__"}
    gc.collect()
    # Frozen objects are not visited: a rehearsal flushes no stream of the fork server.
    gc.freeze()
    rehearse(own, preloaded)
    gc.collect()
    gc.freeze()
    os.putenv("DUNLIN_WARM_SCRIPT", path)
    os.putenv("DUNLIN_WARM_ENVIRONMENT", "1")
    os.putenv("DUNLIN_WARM_NOW", files)
    set_up(path, first)
    if os.fork() == 0:
        begin_request(own)
        end(run(code, path), preloaded)


if "DUNLIN_WARM_SCRIPT" in __import__("os").environ:
    import _weakref
    import atexit
    import builtins
    import gc
    import io
    import os
    from _frozen_importlib_external import SourceFileLoader as LOADER

    # Bytes of the first read of a message, and its maximum length.
    PART, MAX = 16 * 1024, 256 * 1024
    # Modules after this one in `sys.modules` are the script's.
    LAST = "_weakref"
    ROUNDS = 20
    INTERPRETER = os.environ["DUNLIN_WARM_INTERPRETER"].split("\n")
    main()
