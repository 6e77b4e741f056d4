#!/usr/bin/env php
<?php
// Prints the request's variables and its body. With ?struct it asks for struct mode, with ?ask it shows what
// the server answers to a callout that it does not know.
require __DIR__ . '/Cgiplus.php';

foreach (Cgiplus::requests() as $request) {
    $query = $request->variables['QUERY_STRING'] ?? '';
    $request->write("Content-Type: text/plain\n\n");
    if ($query === 'struct') {
        Cgiplus::useStructMode();
    }
    if ($query === 'ask') {
        $request->write('answer=' . Cgiplus::callout('WHAT: is this?') . "\n");
    }
    foreach ($request->variables as $name => $value) {
        $request->write("$name=$value\n");
    }
    $request->write("\n");
    while (($part = $request->read(65536)) !== '') {
        $request->write($part);
    }
}
