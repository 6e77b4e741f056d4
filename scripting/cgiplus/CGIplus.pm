# CGIplus for Perl: one process handles many requests. Under plain CGI the same script handles one.
#
#     use CGIplus;
#     while (CGIplus::next_request()) {
#         print "Content-Type: text/plain\n\nhello\n";
#     }
#
# %ENV holds the request's variables, CGIplus::body reads its body.
package CGIplus;
use strict;
use warnings;

my %own = %ENV;
my $end = delete $own{CGIPLUSEOF};
my ($begin_callout, $end_callout) = delete @own{qw(CGIPLUSESC CGIPLUSEOT)};
my $path = delete $own{CGIPLUSIN};
my ($stream, $left, $requests) = (undef, 0, 0);

# The directory of this library is not part of a request, nor of the environment of child processes.
if (defined(my $library = delete $own{CGIPLUS_LIB})) {
    for my $name (qw(PERL5LIB PYTHONPATH)) {
        my @folders = grep { $_ ne $library } split /:/, $own{$name} // '';
        if (@folders) { $own{$name} = join ':', @folders }
        else { delete $own{$name} }
    }
}

# Whether the process may handle more than one request.
sub is_cgiplus { return defined $end && length $end }

# Ends the response to the previous request, and waits for the next one. False if there is none.
sub next_request {
    if (!is_cgiplus()) {
        return 0 if $requests++;
        $left = $ENV{CONTENT_LENGTH} || 0;
        return 1;
    }
    if ($requests++) {
        1 while length body(65536);
        print STDOUT $end;
        STDOUT->flush;
    } else {
        require IO::Handle;
        open $stream, '<', $path or die "$path: $!\n";
    }
    while (defined(my $line = <$stream>)) {
        my %variables;
        if ($line eq "!\n") {
            while (defined($line = <$stream>) && $line ne "\n") {
                chomp $line;
                my ($name, $value) = split /=/, $line, 2;
                $variables{$name} = $value;
            }
        } elsif ($line =~ /^!!(\d+)$/) {
            my $data;
            read $stream, $data, $1;
            %variables = map { substr($_, -1) = ''; split /=/, $_, 2 } unpack '(v/a)*', substr $data, 0, -2;
        } else {
            next;
        }
        %ENV = (%own, %variables);
        $left = $ENV{CONTENT_LENGTH} || 0;
        return 1;
    }
    return 0;
}

# Reads that number of bytes of the body, or all remaining ones without a number; returns none at its end.
sub body {
    my ($size) = @_;
    $size = $left if !defined $size || $size > $left;
    return '' if !$size;
    my $bytes;
    my $count = read STDIN, $bytes, $size;
    $left = $count ? $left - $count : 0;
    return $bytes;
}

# Sends a callout to the server. Returns the response, or undef for a text without one.
sub callout {
    my ($text) = @_;
    print STDOUT "$begin_callout\n$text\n$end_callout";
    STDOUT->flush;
    return if $text =~ /^[!#]/;
    my $response = <$stream>;
    chomp $response if defined $response;
    return $response;
}

# Enables struct mode from the next request on: variables have lengths, so that they can contain any
# byte. Call it while a request is handled.
sub use_struct_mode {
    callout('!CGIPLUS: struct') if is_cgiplus() && !defined $own{CGIPLUS_VAR_RECORD};
    return;
}

1;
