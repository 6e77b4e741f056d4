"""Results of comparisons, as if they had been run."""


def results_of(values_by_server, metric="requests_per_second"):
    """A comparison as if it had been run."""
    cells = {
        name: {
            "state": "measured",
            "rounds": [
                {"round": n, "order": n, "command": ["x"], "verdict": "VALID", "reasons": [], "values": {metric: v}, "histogram": None}
                for n, v in enumerate(values)
            ],
            "facts": {},
        }
        for name, values in values_by_server.items()
    }
    cells["hurt"] = {"state": "failed", "reason": "it died", "log_tail": "<script>alert(1)</script>"}
    cells["gone"] = {"state": "not-available", "reason": "it is not installed"}
    servers = [
        {"name": name, "version": name, "missing": None, "configurations": {}} for name in cells
    ]
    row = {"id": "r", "title": "a row", "group": None, "x": 1.0, "then": [{"server": "then", "metric": metric, "value": 7.0, "note": ""}], "notes": [], "cells": cells}
    scenario = {
        "name": "made", "title": "Made up", "summary": "", "document": "", "notes": ["<b>"], "charts": [], "rows": [row],
        "metrics": [{"key": metric, "title": "Requests per second", "unit": "/s", "better": "higher"}],
    }
    machine = {"processor": "", "processors": 1, "server_processors": "0", "load_processors": "0", "memory_bytes": 0, "kernel": "", "distribution": "", "facts": {}}
    return {
        "format": 1, "generator": "", "command": [], "seed": 1, "started": "", "finished": "", "interrupted": False,
        "rounds": 11, "machine": machine, "servers": servers, "scenarios": [scenario],
    }
