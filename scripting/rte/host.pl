# A run-time environment: runs one Perl script after the other, named by SCRIPT_FILENAME, for the web
# server that has started this process.
#
# Scripts are written as CGI programs. Each is compiled once for each version of its file, as the body
# of a function in a package of its own; its package variables (`our`) keep their values until it
# runs again in this process. `exit` ends the script, not the process.
use strict;
use warnings;
use Cwd ();
use File::Basename ();
use IO::Handle;

package Dunlin::Rte;

# First, so that a script sees none of the variables below.
sub compile { return eval $_[0] }

my ($end, $begin_callout, $end_callout, $path) = delete @ENV{qw(CGIPLUSEOF CGIPLUSESC CGIPLUSEOT CGIPLUSIN)};
my %own = %ENV;
my (%scripts, $packages);
my $reported = 0;

# `exit` leaves the script by an exception that names its status.
BEGIN {
    *CORE::GLOBAL::exit = sub (;$) { die bless { status => $_[0] // 0 }, 'Dunlin::Rte::Exit' };
}

sub load {
    my ($file) = @_;
    my @metadata = stat $file or die "$file: $!\n";
    my $state = "@metadata[1, 7, 9]";
    my $script = $scripts{$file};
    return $script->{code} if $script && $script->{state} eq $state;
    open my $source, '<', $file or die "$file: $!\n";
    my $text = do { local $/; <$source> };
    close $source;
    my $package = 'Dunlin::Rte::Script' . ++$packages;
    $text =~ s/^__(END|DATA)__\n.*//ms;
    my $code = compile("package $package; no strict; no warnings; sub {\n#line 1 \"$file\"\n$text\n}");
    die $@ if !$code;
    $scripts{$file} = { state => $state, code => $code };
    return $code;
}

# Reads the request's body from standard input and no more.
package Dunlin::Rte::Body;
sub TIEHANDLE { my ($class, $left) = @_; return bless { left => $left, buffer => '' }, $class }
sub fill {
    my ($self) = @_;
    return 0 if !$self->{left};
    my $size = $self->{left} < 65536 ? $self->{left} : 65536;
    my $count = sysread $Dunlin::Rte::input, $self->{buffer}, $size, length $self->{buffer};
    $self->{left} = $count ? $self->{left} - $count : 0;
    return $count;
}
sub READ {
    my ($self, undef, $size, $offset) = @_;
    1 while length $self->{buffer} < $size && $self->fill;
    my $data = substr $self->{buffer}, 0, $size, '';
    $_[1] = '' if !defined $_[1];
    $offset //= 0;
    $_[1] = substr($_[1], 0, $offset) . $data;
    return length $data;
}
sub READLINE {
    my ($self) = @_;
    my @lines;
    while (1) {
        my $at = defined $/ && length $/ ? index $self->{buffer}, $/ : -1;
        if ($at < 0) {
            next if $self->fill;
            last if !length $self->{buffer};
            $at = length $self->{buffer};
        } else {
            $at += length $/;
        }
        my $line = substr $self->{buffer}, 0, $at, '';
        return $line if !wantarray;
        push @lines, $line;
    }
    return wantarray ? @lines : undef;
}
sub GETC { my ($self) = @_; my $byte; return $self->READ($byte, 1) ? $byte : undef }
sub EOF { my ($self) = @_; return !length $self->{buffer} && !$self->{left} }
sub BINMODE { return 1 }
sub FILENO { return 0 }
sub CLOSE { return 1 }

# Buffers the response up to a limit, so that a failure can replace it.
package Dunlin::Rte::Response;
sub TIEHANDLE { my ($class) = @_; return bless { buffer => '', sent => 0, utf8 => 0 }, $class }
sub flush {
    my ($self) = @_;
    while (length $self->{buffer}) {
        my $count = syswrite $Dunlin::Rte::output, $self->{buffer};
        return 0 if !defined $count;
        $self->{sent} = 1;
        substr $self->{buffer}, 0, $count, '';
    }
    return 1;
}
sub PRINT {
    my $self = shift;
    my $data = join(defined $, ? $, : '', @_) . (defined $\ ? $\ : '');
    utf8::encode($data) if $self->{utf8} || !utf8::downgrade($data, 1);
    $self->{buffer} .= $data;
    return $| || length $self->{buffer} > 65536 ? $self->flush : 1;
}
sub PRINTF { my ($self, $format, @list) = @_; local $\; return $self->PRINT(sprintf $format, @list) }
sub WRITE {
    my ($self, $data, $size, $offset) = @_;
    local $\;
    $data = substr $data, $offset // 0, $size // length $data;
    return $self->PRINT($data) && $self->flush ? length $data : undef;
}
sub BINMODE { my ($self, $layer) = @_; $self->{utf8} = ($layer // '') =~ /utf-?8/i; return 1 }
sub FILENO { return 1 }
sub CLOSE { return 1 }

package Dunlin::Rte;
our ($input, $output);

sub run {
    my (%variables) = @_;
    %ENV = (%own, %variables);
    my $file = $ENV{SCRIPT_FILENAME};
    chdir File::Basename::dirname($file);
    my $body = tie *STDIN, 'Dunlin::Rte::Body', $ENV{CONTENT_LENGTH} || 0;
    local $0 = $file;
    local @ARGV = ();
    local ($/, $\, $,, $|) = ("\n", undef, undef, 0);
    my $response = tie *STDOUT, 'Dunlin::Rte::Response';
    my $ok = eval { load($file)->(); 1 };
    my $error = $@;
    if (!$ok && ref $error eq 'Dunlin::Rte::Exit') {
        # As with CGI, the client does not get the exit status.
        $ok = 1;
    }
    select STDOUT;
    if (!$ok) {
        print STDERR $error;
        if ($response->{sent}) {
            # The response has begun and must not appear complete.
            require POSIX;
            POSIX::_exit(1);
        }
        # The first line of the error, as the value of a header.
        my ($reason) = grep { /\S/ } split /\n/, "$error";
        $reason = join ' ', split ' ', substr($reason // '1', 0, 300);
        $reason =~ s/[[:cntrl:]]/?/g;
        utf8::encode($reason) if utf8::is_utf8($reason);
        $response->{buffer} = "Status: 500\nDunlin-Failed: $reason\n\n";
    }
    1 while $body->fill && (($body->{buffer} = ''), 1);
    undef $body;
    untie *STDIN;
    $response->{buffer} .= report() . $end;
    $response->flush;
    undef $response;
    untie *STDOUT;
    return;
}

# A callout with the files of all modules, if they have changed.
sub report {
    return '' if keys %INC == $reported;
    $reported = keys %INC;
    my $files = join '', map { "$_\0" } grep { defined && !ref && m{^/} } values %INC;
    utf8::encode($files) if utf8::is_utf8($files);
    return $begin_callout . '!LOADED: ' . substr($files, 0, 60 * 1024) . $end_callout;
}

sub main {
    open $input, '<&=', 0 or die "standard input: $!\n";
    open my $stream, '<', $path or die "$path: $!\n";
    open $output, '>&=', 1 or die "standard output: $!\n";
    # From the second request on, variables can contain any byte.
    syswrite $output, "$begin_callout!CGIPLUS: struct$end_callout";
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
        run(%variables);
    }
    return;
}

main();
