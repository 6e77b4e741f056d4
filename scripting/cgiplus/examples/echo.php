#!/usr/bin/env php
<?php
// Prints the request's variables and its body. With ?struct it enables struct mode, with ?callout it shows the
// server's response to an unknown callout.
require __DIR__ . '/Cgiplus.php';

foreach (Cgiplus::requests() as $request) {
    $query = $request->variables['QUERY_STRING'] ?? '';
    $request->write("Content-Type: text/plain\n\n");
    if ($query === 'struct') {
        Cgiplus::useStructMode();
    }
    if ($query === 'callout') {
        $request->write('response=' . Cgiplus::callout('WHAT: is this?') . "\n");
    }
    foreach ($request->variables as $name => $value) {
        $request->write("$name=$value\n");
    }
    $request->write("\n");
    while (($part = $request->read(65536)) !== '') {
        $request->write($part);
    }
}
