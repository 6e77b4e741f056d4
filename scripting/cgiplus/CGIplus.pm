# CGIplus for Perl: one process answers many requests. Under plain CGI the same script answers one.
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

# Where the server keeps this library is no part of a request, nor of the environment of programs that are started.
if (defined(my $library = delete $own{CGIPLUS_LIB})) {
    for my $name (qw(PERL5LIB PYTHONPATH)) {
        my @folders = grep { $_ ne $library } split /:/, $own{$name} // '';
        if (@folders) { $own{$name} = join ':', @folders }
        else { delete $own{$name} }
    }
}

# Whether the process may answer more than one request.
sub is_cgiplus { return defined $end && length $end }

# Ends the answer to the request before, and waits for the next. False when there is none.
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

# As many bytes of the body, all that are left without a number; none at its end.
sub body {
    my ($size) = @_;
    $size = $left if !defined $size || $size > $left;
    return '' if !$size;
    my $bytes;
    my $count = read STDIN, $bytes, $size;
    $left = $count ? $left - $count : 0;
    return $bytes;
}

# Says something to the server; returns its answer, or undef for a text that asks for none.
sub callout {
    my ($text) = @_;
    print STDOUT "$begin_callout\n$text\n$end_callout";
    STDOUT->flush;
    return if $text =~ /^[!#]/;
    my $answer = <$stream>;
    chomp $answer if defined $answer;
    return $answer;
}

# Has variables come with their lengths from the next request on, so that they hold any byte. To be
# called while a request is answered.
sub use_struct_mode {
    callout('!CGIPLUS: struct') if is_cgiplus() && !defined $own{CGIPLUS_VAR_RECORD};
    return;
}

1;
