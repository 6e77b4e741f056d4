"""Warm CGI: differences to plain CGI. `test_cgi` runs its tests with both kinds."""

import json
import os
import signal
import subprocess
import threading

import pytest

from support.http import parse, read_all
from support.processes import is_alive, none_left, fork_servers, fork_server_socket
from support.scripts import HELLO, IDENTITY, PRINT, script
from support.server import DUNLIN
from support.waiting import wait_until


@pytest.fixture
def kind():
    return "warm"


def compile_c(directory, name, source, *options):
    file = directory.parent / f"{name}.c"
    file.write_text(source)
    subprocess.run(["gcc", "-o", directory / name, file, *options], check=True)


PRINT_PERL = r"""#!/usr/bin/perl -w
use strict;
use warnings;
use Cwd qw(getcwd);
sub quoted { my $text = shift; $text =~ s/(["\\])/\\$1/g; return "\"$text\"" }
binmode STDIN;
my $body = do { local $/; <STDIN> } // '';
my @fds = do { opendir my $d, "/proc/self/fd"; sort grep { /\d/ } readdir $d };
print "Content-Type: application/json\n\n{\"env\": {";
print join ",", map { quoted($_) . ":" . quoted($ENV{$_}) } sort keys %ENV;
print "}, \"args\": [", join(",", map { quoted($_) } @ARGV), "], \"cwd\": ", quoted(getcwd());
print ", \"name\": ", quoted($0), ", \"body\": ", quoted($body);
print ", \"fds\": [", join(",", map { quoted($_) } @fds), "]";
print ", \"group\": ", (getpgrp() == $$ ? "true" : "false"), ", \"parent\": ", getppid(), "}";
"""

PRINT_C = r"""
#include <stdio.h>
#include <unistd.h>
extern char **environ;
static void quoted(const char *s) {
    putchar('"');
    for (; *s; s++) { if (*s == '"' || *s == '\\') putchar('\\'); putchar(*s); }
    putchar('"');
}
int main(int argc, char **argv) {
    char text[4096];
    printf("Content-Type: application/json\n\n{\"env\": {");
    for (char **e = environ; *e; e++) {
        char *v = *e;
        while (*v != '=') v++;
        *v = 0;
        if (e != environ) putchar(',');
        quoted(*e); putchar(':'); quoted(v + 1);
    }
    printf("}, \"args\": [");
    for (int i = 1; i < argc; i++) { if (i > 1) putchar(','); quoted(argv[i]); }
    printf("], \"name\": "); quoted(argv[0]);
    printf(", \"cwd\": "); quoted(getcwd(text, sizeof text));
    ssize_t n = read(0, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    printf(", \"body\": "); quoted(text);
    printf(", \"group\": %s, \"parent\": %d}", getpgrp() == getpid() ? "true" : "false", getppid());
}
"""

PRINT_PYTHON = """#!/usr/bin/python3
import json, os, sys, signal
print("Content-Type: application/json\\n")
print(json.dumps({"env": dict(os.environ), "args": sys.argv[1:], "cwd": os.getcwd(),
    "group": os.getpgrp() == os.getpid(), "fds": sorted(os.listdir("/proc/self/fd")),
    "body": sys.stdin.read(), "name": __name__, "file": __file__, "path": sys.path,
    "parent": os.getppid(), "argv": sys.argv, "orig": sys.orig_argv, "exe": sys.executable,
    "main": sorted(vars(sys.modules["__main__"])), "umask": os.umask(0),
    "streams": [(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through,
                 s.newlines, s.buffer.name, type(s.buffer).__name__)
                for s in (sys.stdin, sys.stdout, sys.stderr)],
    "signals": [str(signal.getsignal(n)) for n in (2, 13, 15)], "stdin": sys.stdin is sys.__stdin__,
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "comm": open("/proc/self/comm").read(), "flags": str(sys.flags)}))
"""


@pytest.mark.parametrize("name", ["p.py", "u.py", "p.pl", "c"])
def test_a_program_observes_the_same_as_with_plain_cgi(tmp_path, serve, name):
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script(directory, "p.py", PRINT_PYTHON)
    script(directory, "u.py", PRINT_PYTHON.replace("python3", "python3 -uO", 1))
    script(directory, "p.pl", PRINT_PERL)
    compile_c(directory, "c", PRINT_C)
    settings = f'directory = "{directory}", env = {{ APP = "blue", LANG = "C.UTF-8" }}'
    server = serve(more="".join(
        f'[[site.route]]\npath = "/{kind}/*"\nscript = {{ kind = "{kind}", {settings} }}\n'
        for kind in ("warm", "cgi")))

    def fetch(kind, query):
        body = "some text"
        data = (f"POST /{kind}/{name}/in/fo?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"X-A: b=c\r\nX-Empty:\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        if query == "one+two":
            data = (f"GET /{kind}/{name}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, fields, response = parse(server.exchange(data.encode()))
        assert status == 200, server.log
        reported = json.loads(response)
        assert reported["group"] and reported.pop("parent") == server.pid
        for key in ("REMOTE_PORT", "REQUEST_URI", "DOCUMENT_URI", "SCRIPT_NAME"):
            reported["env"][key] = reported["env"][key].replace("/cgi/", "/warm/")
        for key in ("REMOTE_PORT", *IDENTITY):
            reported["env"].pop(key)
        return reported

    for query in ("x=1", "one+two"):
        plain = fetch("cgi", query)
        for _ in range(3):
            assert fetch("warm", query) == plain
    assert plain["args"] == ["one", "two"]
    assert len(fork_servers(server)) == 1


ENVIRONMENTS = {
    "e.py": "#!/usr/bin/python3\nimport os, sys\nprint('Content-Type: a/b\\n')\nsys.stdout.flush()\n"
            "os.system('/usr/bin/env')\n",
    "e.pl": "#!/usr/bin/perl\n$| = 1;\nprint \"Content-Type: a/b\\n\\n\";\nsystem('/usr/bin/env');\n",
    "e": "printf 'Content-Type: a/b\\n\\n'; /usr/bin/env",
}


@pytest.mark.parametrize("given", [None, "", "1"])
def test_a_fork_server_has_only_the_environment_of_the_route(cgi, given):
    env = "" if given is None else f', LD_BIND_NOW = "{given}"'
    server = cgi(ENVIRONMENTS, f'env = {{ APP = "blue"{env} }}')
    for name in ENVIRONMENTS:
        for _ in range(2):
            seen = dict(line.split("=", 1) for line in server.get(f"/cgi-bin/{name}")[2].decode().splitlines())
            assert seen["APP"] == "blue" and seen.get("LD_BIND_NOW") == given
            assert "LD_PRELOAD" not in seen and not [key for key in seen if "WARM" in key], seen
    assert len(fork_servers(server)) == len(ENVIRONMENTS)


@pytest.mark.parametrize("settings, number", [("", 0), ('env = { LD_BIND_NOW = "" }', 1)])
def test_a_program_that_references_missing_functions_runs(cgi, tmp_path, settings, number):
    library = tmp_path / "lib.so"
    for source in ("int gone(void) { return 0; }", "int other;"):
        (tmp_path / "lib.c").write_text(source)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "lib.c"], check=True)
        if "gone" in source:
            compile_c(cgi.directory, "lacks", '#include <stdio.h>\nint gone(void);\n'
                      'int main(int n, char **a) { puts("Content-Type: a/b\\n\\nok");'
                      ' return n > 99 ? gone() : 0; }\n', library, "-Wl,-z,lazy")
    server = cgi(settings=settings)
    for _ in range(2):
        assert server.get("/cgi-bin/lacks")[2] == b"ok\n"
    assert len(fork_servers(server)) == number


def test_no_state_of_one_request_remains_in_the_next(cgi):
    server = cgi({
        "s.py": "#!/usr/bin/python3\nimport os, sys, json, random\nprint('Content-Type: a/b\\n')\n"
                "print(getattr(json, 'left', None), os.environ.get('LEFT'), sys.argv)\n"
                "print(random.random())\njson.left = os.environ['LEFT'] = 'left'\n",
        "s.pl": "#!/usr/bin/perl\nuse Cwd;\nprint \"Content-Type: a/b\\n\\n\", $Cwd::left // 'None', "
                "' ', $ENV{LEFT} // 'None', \" @ARGV\\n\", rand;\n$Cwd::left = $ENV{LEFT} = 'left';\n",
    })
    for name in ("s.py", "s.pl"):
        responses = [server.get(f"/cgi-bin/{name}")[2].decode().splitlines() for _ in range(4)]
        assert all(response[0].startswith("None None ") for response in responses), responses
        # Nor the next random number.
        assert len({response[1] for response in responses}) == 4


STATE = r"""#!/usr/bin/python3
import builtins, gc, json, os, subprocess, sys, warnings
print("Content-Type: application/json\n")
print(json.dumps({
    "sys": sorted(vars(sys)), "builtins": sorted(vars(builtins)), "main": list(globals()),
    "arguments": [sys.argv, sys.orig_argv, sys.path], "environment": dict(os.environ),
    "handed on": sorted(subprocess.run(["/usr/bin/env"], capture_output=True).stdout.decode().splitlines()),
    "streams": [[s.name, s.closed, s.mode, s.encoding, s.errors, s is t, s.buffer.raw.closefd] for s, t in
                ((sys.stdin, sys.__stdin__), (sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__))],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage],
    "few": [a <= b for a, b in zip(gc.get_count(), gc.get_threshold())],
    "warnings": [str(f) for f in warnings.filters],
    "warned": [n for n, m in sys.modules.items() if getattr(m, "__warningregistry__", None)],
    "follows": [str(sys.gettrace()), str(sys.getprofile())],
    "modules": [n for n in sys.modules if not n.replace(".", "").isidentifier()],
    "first": list(sys.modules)[:3], "is main": sys.modules["__main__"].__dict__ is globals(),
    "fds": sorted(os.listdir("/proc/self/fd")), "umask": os.umask(0), "cwd": os.getcwd()}))
"""


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_rehearsals_of_a_fork_server_leave_no_trace(tmp_path, serve, method):
    directory = tmp_path / "cgi-bin"
    directory.mkdir()
    script(directory, "s.py", STATE)
    server = serve(more="".join(
        f'[[site.route]]\npath = "/{kind}/*"\nscript = {{ kind = "{kind}", directory = "{directory}" }}\n'
        for kind in ("warm", "cgi")))
    body = "Content-Length: 1\r\n\r\nx" if method == "POST" else "\r\n"

    def fetch(kind):
        data = f"{method} /{kind}/s.py?a+b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{body}"
        status, fields, response = parse(server.exchange(data.encode()))
        assert status == 200, server.log
        reported = json.loads(response.decode().replace("/warm/", "/cgi/"))
        for key in ("REMOTE_PORT", *IDENTITY):
            reported["environment"].pop(key)
        reported["handed on"] = [line for line in reported["handed on"]
                             if not line.startswith(("REMOTE_PORT=", *(f"{key}=" for key in IDENTITY)))]
        return reported

    plain = fetch("cgi")
    assert all(plain["few"]) and not plain["modules"]
    for _ in range(3):
        assert fetch("warm") == plain
    assert len(fork_servers(server)) == 1


@pytest.fixture
def beginning(cgi, tmp_path):
    """A server with one script, `/cgi-bin/s.py`, before which its interpreter runs code of the site's own."""
    def make(code, text):
        own = tmp_path / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text(code)
        return cgi({"s.py": f"#!/usr/bin/python3\n{text}"},
                   f'env = {{ PYTHONPATH = "{own}", PYTHONDONTWRITEBYTECODE = "1" }}')
    return make


def test_output_before_a_script_starts_is_part_of_every_response(beginning):
    """Standard output is buffered in the host, and no rehearsal may flush it."""
    server = beginning("import sys\nsys.stdout.write('Content-Type: a/b\\n\\nbegins ')\n", "print('ends')\n")
    for _ in range(3):
        assert server.get("/cgi-bin/s.py")[2] == b"begins ends\n"
    assert len(fork_servers(server)) == 1


def test_profilers_get_no_events_of_a_rehearsal(beginning):
    server = beginning(
        "import sys\nheard = []\nsys.setprofile(lambda frame, *_: heard.append(frame.f_code.co_name))\n",
        "import sys, sitecustomize\nsys.setprofile(None)\nprint('Content-Type: a/b\\n')\n"
        "print('prepare' in sitecustomize.heard, 'rehearse_once' in sitecustomize.heard)\n")
    assert server.get("/cgi-bin/s.py")[2] == b"True False\n"


def test_modules_of_the_script_are_released(cgi, tmp_path):
    """Also when the script has changed the order in which modules were loaded."""
    (cgi.directory / "beside.py").write_text(
        f"file = open('{tmp_path}/' + __name__, 'w')\nfile.write('written')\nclass C:\n"
        f"    def __del__(self):\n        open('{tmp_path}/gone', 'a').write('x')\nc = C()\n")
    server = cgi({"m.py": "#!/usr/bin/python3\nimport json, sys, _weakref\nimport beside\nkept = beside\n"
                          "for name in ('json', '_weakref', 'beside'):\n    del sys.modules[name]\n"
                          "import _weakref, json, beside\nsys.beside = beside\n"
                          "print('Content-Type: a/b\\n\\nok')\n"})
    for number in range(1, 4):
        (tmp_path / "beside").unlink(missing_ok=True)
        assert server.get("/cgi-bin/m.py")[2] == b"ok\n"
        wait_until(lambda: (tmp_path / "gone").read_text() == "xx" * number, "both are gone")
        assert (tmp_path / "beside").read_text() == "written"


PAGES = """
def pages():
    # Of this process alone: present, not of a file, and nobody else's.
    count = 0
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", 0) as pagemap:
        for line in maps:
            first, last = (int(edge, 16) for edge in line.split()[0].split("-"))
            if line.split()[1] == "rw-p":
                pagemap.seek(first // 4096 * 8)
                seen = pagemap.read((last - first) // 4096 * 8)
                count += sum(entry & 0xa1 == 0x81 for entry in seen[7::8])
    return count
"""
WRITES = f"""#!/usr/bin/python3
import os, sys, signal
before = os.environ["QUERY_STRING"]
{PAGES}
own = pages()
import heavy
left = sum(block[0] for block in heavy.blocks)
for block in heavy.blocks:
    block[0] = 1
if before == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif before == "exec":
    os.execv("/bin/sh", ["sh", "-c", "printf 'Content-Type: a/b\\n\\nexec'"])
elif before == "large":
    sys.data = data = bytearray(1 << 26)
    data[::4096] = bytes(1 << 14)
print("Content-Type: a/b\\n")
print(left, own)
"""


@pytest.fixture
def writing(cgi, tmp_path):
    """Requests a script that writes to 300 pages of a module that its fork server has loaded: what it found there, and
    the number of its own pages when it began."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14):
        pytest.skip("the kernel cannot copy pages beforehand")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "heavy.py").write_text("blocks = [bytearray(4096) for _ in range(300)]\n")
    server = cgi({"w.py": WRITES}, f'preload = ["heavy"], env = {{ PYTHONPATH = "{modules}" }}')

    def fetch():
        return tuple(map(int, server.get("/cgi-bin/w.py")[2].split()))

    return server, fetch


@pytest.mark.parametrize("before", ["", "kill", "exec", "large"])
def test_pages_that_processes_write_to_are_copied_before_they_begin(writing, before):
    server, fetch = writing
    _, first = fetch()
    for _ in range(20 if before else 0):
        server.get(f"/cgi-bin/w.py?{before}")
    wait_until(lambda: fetch()[1] > first + 250, "they are copied")
    # They are the host's, whatever others have written to theirs.
    assert {fetch()[0] for _ in range(5)} == {0}
    none_left(server)


@pytest.mark.parametrize("text, status", [
    ("sys.exit(0)", 0), ("sys.exit(3)", 3), ("sys.exit('a reason')", 1), ("sys.exit(-1)", 255),
    ("raise SystemExit(True)", 1), ("1 / 0", 1), ("os._exit(7)", 7),
    ("import atexit; atexit.register(lambda: os._exit(9))", 9),
    ("import threading; threading.Thread(target=lambda: os._exit(5)).start()", 5),
    ("import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", 0),
    ("this is no Python", 1),
])
def test_python_ends_as_it_does_otherwise(cgi, text, status):
    server = cgi({"e.py": f"#!/usr/bin/python3\nimport os, sys\n{text}\n"})
    for _ in range(2):
        assert server.get("/cgi-bin/e.py")[0] == 502
    none_left(server)
    server.stop()  # Only then the log has the second of two equal lines.
    wait_until(lambda: server.log.count("it wrote nothing") == 2, "both are logged")
    lines = [line for line in server.log.splitlines() if "it wrote nothing" in line]
    assert all((f"exit status is {status}" in line) == (status != 0) for line in lines), server.log
    assert "fork server>" not in server.log


def test_a_traceback_is_the_one_of_python_itself(cgi):
    server = cgi({"t.py": "#!/usr/bin/python3\ndef f():\n    raise ValueError('no')\ntry:\n    1 / 0\n"
                          "except ZeroDivisionError:\n    f()\n"})
    path = cgi.directory / "t.py"
    plain = subprocess.run([path], capture_output=True, text=True).stderr.splitlines()
    assert server.get("/cgi-bin/t.py")[0] == 502
    wait_until(lambda: "ValueError: no script=" in server.log, "all of it is logged")
    # As one message, whose further lines are indented.
    message = server.log.partition("stderr: ")[2].partition(" script=")[0]
    reported = [line.rstrip()[2 if at else 0 :] for at, line in enumerate(message.splitlines())]
    assert reported == [line.rstrip() for line in plain if line] and server.log.count("stderr: ") == 1


def test_files_that_python_would_close_are_closed(cgi, tmp_path):
    server = cgi({"w.py": f"#!/usr/bin/python3\nimport sys\nf = open('{tmp_path}/w', 'w')\n"
                          "f.write('written')\nclass C:\n    def __del__(self):\n"
                          "        sys.stdout.write('gone')\nc = C()\nc.c = c\n"
                          "print('Content-Type: a/b\\n')\n"})
    assert server.get("/cgi-bin/w.py")[2] == b"gone"
    wait_until(lambda: (tmp_path / "w").read_text() == "written", "the file is written")


def test_perl_ends_as_it_does_otherwise(cgi):
    server = cgi({
        "die.pl": "#!/usr/bin/perl\ndie 'a reason';\n",
        "exit.pl": "#!/usr/bin/perl\nEND { $? = 4 }\nexit 3;\n",
        "syntax.pl": "#!/usr/bin/perl\nuse strict;\n$x = 1;\n",
        "state.pl": "#!/usr/bin/perl -wT\nprint \"Content-Type: a/b\\n\\n\", defined $^S ? $^S : 'u', "
                    "' ', scalar(my @c = caller), ' ', ${^TAINT}, ' ', __FILE__, ' ', __LINE__, \"\\n\";\n"
                    "eval { system(\"echo $ENV{QUERY_STRING}\") };\nprint $@ =~ /^Insecure/ ? 'tainted' : \"not: $@\";\n"
                    "print <DATA>;\n__END__\nmore\n",
    })
    for _ in range(2):
        for name, status in (("die.pl", 255), ("exit.pl", 4), ("syntax.pl", 255)):
            assert server.get(f"/cgi-bin/{name}")[0] == 502
            wait_until(lambda: f"exit status is {status}" in server.log, "it is logged")
        assert server.get("/cgi-bin/state.pl?a=b")[2].decode() == (
            f"0 0 1 {cgi.directory}/state.pl 2\ntaintedmore\n")
    wait_until(lambda: server.log.count("a reason at") == 2, "both are logged")
    server.logged(f"stderr: a reason at {cgi.directory}/die.pl line 2. script")


def test_other_interpreters_are_stopped_before_they_begin(cgi):
    server = cgi({"a": "printf 'Content-Type: a/b\\n\\n%s %s %s' \"$0\" \"$#\" \"$1\"",
                  "env": "#!/usr/bin/env perl\nprint \"Content-Type: a/b\\n\\n$0 @ARGV\";\n"})
    for _ in range(2):
        assert server.get("/cgi-bin/a?b")[2].decode() == f"{cgi.directory}/a 1 b"
        assert server.get("/cgi-bin/env?b+c")[2].decode() == f"{cgi.directory}/env b c"
    assert set(fork_servers(server)) == {"sh", "env"}


@pytest.mark.parametrize("language", ["python", "perl", "c"])
def test_a_changed_program_is_used_by_the_next_request(cgi, language):
    server = cgi()

    def write(text):
        if language == "python":
            script(cgi.directory, "x", f"#!/usr/bin/python3\nprint('Content-Type: a/b\\n')\nprint('{text}')\n")
        elif language == "perl":
            script(cgi.directory, "x", f"#!/usr/bin/perl\nprint \"Content-Type: a/b\\n\\n{text}\\n\";\n")
        else:
            (cgi.directory / "x").unlink(missing_ok=True)
            compile_c(cgi.directory, "x", '#include <stdio.h>\n'
                      f'int main(void) {{ puts("Content-Type: a/b\\n\\n{text}"); }}\n')

    for number in range(4):
        write(number)
        for _ in range(3):
            assert server.get("/cgi-bin/x")[2] == b"%d\n" % number
    wait_until(lambda: len(fork_servers(server)) == 1, "the hosts of what is gone have ended")


def test_a_changed_preloaded_module_is_loaded_again(cgi, tmp_path):
    module = tmp_path / "modules" / "heavy.py"
    module.parent.mkdir()
    module.write_text("value = 1\n")
    server = cgi({"m.py": "#!/usr/bin/python3\nimport sys\nearly = 'heavy' in sys.modules\nimport heavy\n"
                          "print('Content-Type: a/b\\n')\nprint(early, heavy.value)\n"},
                 f'preload = ["heavy"], env = {{ PYTHONPATH = "{module.parent}", '
                 'PYTHONDONTWRITEBYTECODE = "1" }')
    assert server.get("/cgi-bin/m.py")[2] == b"True 1\n"
    module.write_text("value = 1000\n")
    wait_until(lambda: server.get("/cgi-bin/m.py")[2] == b"True 1000\n", "the host is another")


def test_modules_that_cannot_be_preloaded_are_reported(cgi):
    server = cgi({"m.py": "#!/usr/bin/python3\nprint('Content-Type: a/b\\n\\nok')\n",
                  "m.pl": "#!/usr/bin/perl\nprint \"Content-Type: a/b\\n\\nok\\n\";\n"},
                 'preload = ["missing_module"]')
    assert server.get("/cgi-bin/m.py")[2] == b"ok\n"
    assert server.get("/cgi-bin/m.pl")[2] == b"ok\n"
    wait_until(lambda: server.log.count("preload: missing_module") == 2, "it is logged")


def test_a_module_beside_the_script_takes_precedence_over_the_standard_one(cgi):
    (cgi.directory / "json.py").write_text("mine = True\n")
    server = cgi({"m.py": "#!/usr/bin/python3\nimport json\nprint('Content-Type: a/b\\n')\nprint(json.mine)\n"})
    for _ in range(2):
        assert server.get("/cgi-bin/m.py")[2] == b"True\n"


def test_modules_that_read_the_environment_when_they_are_loaded_get_that_of_the_request(cgi):
    server = cgi({"m.py": "#!/usr/bin/python3\nimport json, multiprocessing.process, wsgiref.handlers\n"
                          "print('Content-Type: a/b\\n')\n"
                          "print(wsgiref.handlers.BaseHandler.os_environ['QUERY_STRING'])\n"
                          "print(multiprocessing.process.ORIGINAL_DIR)\n"})
    for number in range(3):
        output = server.get(f"/cgi-bin/m.py?n={number}")[2].decode()
        assert output == f"n={number}\n{cgi.directory}\n"


def test_a_host_that_hangs_is_ended_and_costs_no_request(cgi):
    server = cgi({"k.py": "#!/usr/bin/python3\nprint('Content-Type: a/b\\n\\nok')\n"})
    assert server.get("/cgi-bin/k.py")[2] == b"ok\n"
    [host] = fork_servers(server).values()
    os.kill(host, signal.SIGSTOP)
    with server.connect(30) as connection:
        connection.sendall(b"GET /cgi-bin/k.py HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, fields, body = parse(read_all(connection))
    assert (status, body) == (200, b"ok\n")
    server.logged("it has not started a process in time")
    none_left(server)


def test_the_script_does_not_run_without_a_request(cgi, tmp_path):
    server = cgi({"r.py": f"#!/usr/bin/python3\nopen('{tmp_path}/ran', 'a').write('x')\n"
                          "print('Content-Type: a/b\\n')\n",
                  "r.pl": f"#!/usr/bin/perl\nBEGIN {{ open F, '>>{tmp_path}/ran'; print F 'x'; close F }}\n"
                          "print \"Content-Type: a/b\\n\\n\";\n"})
    for name in ("r.py", "r.pl"):
        (tmp_path / "ran").unlink(missing_ok=True)
        for _ in range(3):
            assert server.get(f"/cgi-bin/{name}")[0] == 200
        assert (tmp_path / "ran").read_text() == "xxx"


def test_a_host_that_is_killed_costs_no_request(cgi):
    server = cgi({"k.py": "#!/usr/bin/python3\nprint('Content-Type: a/b\\n\\nok')\n"}, "processes = 8")
    assert server.get("/cgi-bin/k.py")[2] == b"ok\n"
    done = threading.Event()
    responses = []

    def fetch():
        while not done.is_set():
            responses.append(server.get("/cgi-bin/k.py")[2])

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    ended = set()

    def other_host():
        """A fork server whose socket is not one of `ended`: a process of one of those may still have that socket."""
        found = ((pid, fork_server_socket(pid)) for pid in fork_servers(server).values())
        return next(((pid, end) for pid, end in found if end and end not in ended), None)

    for number in range(3):
        host, end = wait_until(other_host, "a host runs")
        ended.add(end)
        os.kill(host, signal.SIGKILL)
        wait_until(lambda: server.log.count("the fork server has ended") == number + 1, "the log has its end")
    wait_until(other_host, "another host runs")
    done.set()
    for thread in threads:
        thread.join()
    assert responses and set(responses) == {b"ok\n"}
    none_left(server)


def test_a_hanging_script_does_not_block_the_fork_server(cgi):
    server = cgi({"h.py": "#!/usr/bin/python3\nimport os, time\nif os.environ['QUERY_STRING']:\n"
                          "    time.sleep(1000)\nprint('Content-Type: a/b\\n\\nok')\n"},
                 'timeout = "300ms"')
    for _ in range(3):
        assert server.get("/cgi-bin/h.py?hang=1")[0] == 504
        assert server.get("/cgi-bin/h.py")[2] == b"ok\n"
    assert len(fork_servers(server)) == 1
    none_left(server)


def test_200_concurrent_requests(cgi):
    server = cgi({"n.py": "#!/usr/bin/python3\nimport os\nprint('Content-Type: a/b\\n')\n"
                          "print(os.environ['QUERY_STRING'])\n"},
                 "processes = 200", server="connections = 1000")
    connections = [server.connect(60) for _ in range(200)]
    for number, connection in enumerate(connections):
        connection.sendall(b"GET /cgi-bin/n.py?n=%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % number)
    for number, connection in enumerate(connections):
        status, fields, body = parse(read_all(connection))
        assert (status, body) == (200, b"n=%d\n" % number), server.log
        connection.close()
    none_left(server)


def test_unsupported_programs_run_as_plain_cgi_and_are_reported_once(cgi):
    source = '#include <stdio.h>\nint main(void) { puts("Content-Type: a/b\\n\\nok"); }\n'
    compile_c(cgi.directory, "static", source, "-static")
    compile_c(cgi.directory, "setuid", source)
    (cgi.directory / "setuid").chmod(0o4755)
    server = cgi()
    for name in ("static", "setuid"):
        for _ in range(3):
            assert server.get(f"/cgi-bin/{name}")[2] == b"ok\n"
    wait_until(lambda: server.log.count("runs as plain CGI") == 2, "it is logged")
    server.logged("not dynamically linked")
    server.logged("it has its own privileges")
    assert not fork_servers(server)


def test_check_reports_programs_that_cannot_be_kept_warm(tmp_path):
    directory = tmp_path / "bin"
    (directory / "sub").mkdir(parents=True)
    compile_c(directory, "static", "int main(void) { return 0; }\n", "-static")
    script(directory, "sub/lost", "#!/does/not/exist\n")
    script(directory, "fine", "#!/usr/bin/env perl\n")
    file = tmp_path / "dunlin.toml"
    file.write_text('[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n[[site.route]]\n'
                    f'path = "/x/*"\nscript = {{ kind = "warm", directory = "{directory}" }}\n')
    output = subprocess.check_output([DUNLIN, "check", "--config", file], text=True).splitlines()[1:]
    # The first line has the user of the scripts.
    assert output.pop(0).startswith("scripts default /x/* (warm): ")
    assert len(output) == 2
    assert output[0] == f"{directory}/static runs as plain CGI: it is not dynamically linked"
    assert output[1].startswith(f"{directory}/sub/lost runs as plain CGI: ")


def test_constructors_of_the_program_get_the_request(cgi):
    compile_c(cgi.directory, "early", '#include <stdio.h>\n#include <stdlib.h>\n#include <pthread.h>\n'
              'static char *query; static int forks;\n'
              'static void child(void) { forks++; }\n'
              '__attribute__((constructor)) static void before(void) { query = getenv("QUERY_STRING"); }\n'
              'static void *thread(void *x) { printf("Content-Type: a/b\\n\\n%s", query); return x; }\n'
              'int main(void) { pthread_t t; (void)child; pthread_create(&t, 0, thread, 0);'
              ' pthread_join(t, 0); return 0; }\n')
    server = cgi()
    for number in range(3):
        assert server.get(f"/cgi-bin/early?n={number}")[2] == b"n=%d" % number


def test_an_end_by_a_signal_is_logged(cgi):
    compile_c(cgi.directory, "abort", '#include <stdlib.h>\nint main(void) { abort(); }\n')
    server = cgi()
    for _ in range(2):
        assert server.get("/cgi-bin/abort")[0] == 502
    none_left(server)
    server.stop()  # Only then the log has the second of two equal lines.
    assert server.log.count("signal 6") == 2


def test_hosts_end_with_the_server(cgi):
    server = cgi({"a.py": "#!/usr/bin/python3\nprint('Content-Type: a/b\\n\\nok')\n", "b": HELLO})
    for name in ("a.py", "b"):
        assert server.get(f"/cgi-bin/{name}")[0] == 200
    numbers = fork_servers(server).values()
    assert len(numbers) == 2
    server.stop(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in numbers), "they are gone")


def test_a_fork_server_whose_response_is_not_read_continues(cgi):
    server = cgi({"a.py": PRINT})
    for _ in range(20):
        connection = server.connect()
        connection.sendall(b"GET /cgi-bin/a.py HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.close()
    assert server.get("/cgi-bin/a.py")[0] == 200
    none_left(server)
