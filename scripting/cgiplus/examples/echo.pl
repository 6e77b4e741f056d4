#!/usr/bin/env perl
# Prints the request's variables and its body. With ?struct it enables struct mode, with ?callout it
# shows the server's response to an unknown callout.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use CGIplus;

binmode STDIN;
binmode STDOUT;
while (CGIplus::next_request()) {
    my $query = $ENV{QUERY_STRING} // '';
    print "Content-Type: text/plain\n\n";
    CGIplus::use_struct_mode() if $query eq 'struct';
    print 'response=', CGIplus::callout('WHAT: is this?'), "\n" if $query eq 'callout';
    print "$_=$ENV{$_}\n" for sort keys %ENV;
    print "\n";
    while (length(my $part = CGIplus::body(65536))) {
        print $part;
    }
}
