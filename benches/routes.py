"""The row `routes`: a site with 1,000 routes, of which 200 are regular expressions, against a site with one route.

The path of the requests is that of the last resort in both: no expression and no other pattern matches it, so that all of them
have to be excluded. A cached file, a file that is not cached, and a response of an upstream."""

ROWS = ["routes"]
# Expressions as applications have them, of which each has a number.
SHAPES = [
    r"^/user{}/(\d+)/photos$",
    r"^/app{}/.*\.(css|js)$",
    r"(?i)^/Files{}/",
    r"^/(en|de|fr)/product{}-[a-z-]+$",
]
UNANCHORED = [r"\.(gif|jpe?g|png)$", r"/\.ht", r"/thumb_(\d+)x(\d+)/", r"(?i)\.php$"]


def thousand():
    """The routes: 200 expressions, 600 beginnings, 196 paths and 4 ends."""
    expressions = UNANCHORED + [SHAPES[n % len(SHAPES)].format(n) for n in range(200 - len(UNANCHORED))]
    patterns = [f"/section{n}/*" for n in range(600)] + [f"/page{n}" for n in range(196)] + ["*.svg", "*.css", "*.js", "*.woff2"]
    keys = [("regex", text) for text in expressions] + [("path", text) for text in patterns]
    return "".join(f"[[site.route]]\n{key} = '{text}'\nset_fields = {{ X-Route = \"{n}\" }}\n" for n, (key, text) in enumerate(keys))


class Rows:
    """The row, for `Bench`."""

    def routes(self):
        upstream = self.start("dunlin", core=1)
        try:
            for what, variant, least in (
                ("cached file", {}, 0.98),
                ("file that is not cached", {"cache": False}, 0.95),
                ("proxied", {"upstream": upstream.port}, 0.95),
            ):
                variants = {
                    "one route": ("dunlin", variant),
                    "1,000 routes": ("dunlin", {**variant, "more": thousand()}),
                }
                r = self.race(f"routes, 1 KB, {what}, 32 connections", [], "/1k.bin", 32, variants)
                self.overhead(f"1,000 routes, {what}", r["one route"], r["1,000 routes"], least)
        finally:
            upstream.stop()
