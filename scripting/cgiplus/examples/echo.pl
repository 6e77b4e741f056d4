#!/usr/bin/env perl
# Prints the request's variables and its body. With ?struct it asks for struct mode, with ?ask it
# shows what the server answers to a callout that it does not know.
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
    print 'answer=', CGIplus::callout('WHAT: is this?'), "\n" if $query eq 'ask';
    print "$_=$ENV{$_}\n" for sort keys %ENV;
    print "\n";
    while (length(my $part = CGIplus::body(65536))) {
        print $part;
    }
}
