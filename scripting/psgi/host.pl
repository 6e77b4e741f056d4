# Serves a PSGI application (PSGI 1.1) to the web server that has started this process.
#
# Usage: host.pl FILE, with a listening Unix socket as standard input. FILE ends with the application, a
# reference to a subroutine. Requests and responses cross the socket in frames: length of the payload
# and number of the request (four bytes each, little-endian), kind (one byte), payload. Requests are
# handled one after the other; one read may return many.
use strict;
use warnings;
use Cwd ();
use IO::Select ();
use IO::Socket::UNIX ();
use Scalar::Util ();

package Dunlin::Psgi;

# From the server: a request without and with a body, parts of the body, its end, room for the response,
# and cancellation.
use constant { REQUEST => 1, REQUEST_WITH_BODY => 2, BODY => 3, BODY_END => 4, ROOM => 5, CANCEL => 6 };
# To the server: a part of the response, its end, both in one, and room for the body.
use constant { PART => 1, LAST => 2, WHOLE => 3, BODY_ROOM => 4 };
# For no request: the files of the application, which report that it is ready.
use constant LOADED => 5;
# Bytes that may be in flight to the other side, and the number that is sent or acknowledged at a time.
use constant { WINDOW => 256 * 1024, STEP => 64 * 1024 };
# Seconds without a connection after which the process checks whether the server still runs.
use constant PARENT_CHECK => 2;

my ($listener, $select, %connections, @jobs, $application);
my $reported = 0;
my $parent = getppid;
# The directory of relative names in %INC.
my $directory = Cwd::getcwd();

# The exception for a client that does not wait for the response any more.
my $cancelled = bless {}, 'Dunlin::Psgi::Cancelled';

# A connection of one of the server's workers, with its unprocessed input.
sub accept_one {
    my $socket = $listener->accept or return;
    my $connection = $connections{ fileno $socket } = { socket => $socket, rest => '', requests => {} };
    $select->add($socket);
    report($connection);
    return;
}

# Reports the loaded files to the server.
sub report {
    my ($connection) = @_;
    my @files = grep { defined && !ref } values %INC;
    $reported = keys %INC;
    my $files = join '', map { "$_\0" } grep { m{^/} } map { m{^/} ? $_ : "$directory/$_" } @files;
    utf8::encode($files) if utf8::is_utf8($files);
    send_frame({ connection => $connection, ident => 0 }, LOADED, substr $files, 0, 512 * 1024);
    return;
}

# Waits for input and reads it.
sub read_input {
    my @ready = $select->can_read(%connections ? undef : PARENT_CHECK);
    # The server may have ended without closing the connection.
    exit 0 if !@ready && getppid != $parent;
    for my $ready (@ready) {
        if ($ready == $listener) {
            accept_one();
            next;
        }
        my $connection = $connections{ fileno $ready };
        my $count = sysread $ready, $connection->{rest}, WINDOW, length $connection->{rest};
        if ($count) {
            process_frames($connection);
            next;
        }
        next if !defined $count && $!{EINTR};
        $select->remove($ready);
        delete $connections{ fileno $ready };
        $_->{cancelled} = 1 for values %{ $connection->{requests} };
        close $ready;
    }
    return;
}

sub process_frames {
    my ($connection) = @_;
    my ($at, $size) = (0, length $connection->{rest});
    while ($size - $at >= 9) {
        my ($length, $ident, $kind) = unpack 'VVC', substr $connection->{rest}, $at, 9;
        last if $size - $at < 9 + $length;
        process_frame($connection, $ident, $kind, substr $connection->{rest}, $at + 9, $length);
        $at += 9 + $length;
    }
    substr $connection->{rest}, 0, $at, '';
    return;
}

sub process_frame {
    my ($connection, $ident, $kind, $payload) = @_;
    if ($kind == REQUEST || $kind == REQUEST_WITH_BODY) {
        my $request = {
            connection => $connection,
            ident => $ident,
            payload => $payload,
            body => '',
            ended => $kind == REQUEST,
            room => WINDOW,
            consumed => 0,
        };
        $connection->{requests}{$ident} = $request;
        push @jobs, $request;
        return;
    }
    my $request = $connection->{requests}{$ident} or return;
    if ($kind == BODY) { $request->{body} .= $payload }
    elsif ($kind == BODY_END) { $request->{ended} = 1 }
    elsif ($kind == ROOM) { $request->{room} += unpack 'V', $payload }
    elsif ($kind == CANCEL) { $request->{cancelled} = 1 }
    return;
}

sub send_frame {
    my ($request, $kind, $payload) = @_;
    my $bytes = pack('VVC', length $payload, $request->{ident}, $kind) . $payload;
    my $at = 0;
    while ($at < length $bytes) {
        my $count = syswrite $request->{connection}{socket}, $bytes, length($bytes) - $at, $at;
        if (defined $count) { $at += $count }
        elsif (!$!{EINTR}) {
            $request->{cancelled} = 1;
            return;
        }
    }
    return;
}

# Sends bytes within the server's window.
sub send_part {
    my ($request, $data) = @_;
    for (my $at = 0; $at < length $data; $at += STEP) {
        my $part = substr $data, $at, STEP;
        read_input() while $request->{room} < length $part && !$request->{cancelled};
        die $cancelled if $request->{cancelled};
        $request->{room} -= length $part;
        send_frame($request, PART, $part);
    }
    return;
}

sub head_of {
    my ($status, $headers) = @_;
    my ($lines, $head) = (1, "Status: $status\n");
    for (my $at = 0; $at + 1 < @$headers; $at += 2) {
        $head .= "$headers->[$at]: $headers->[$at + 1]\n";
        $lines++;
    }
    die "a line break in the status or in a header\n" if $head =~ tr/\n// != $lines || $head =~ /[\r\0]/;
    die "a character beyond a byte in a header\n" if !utf8::downgrade($head, 1);
    return "$head\n";
}

sub bytes_of {
    my ($data) = @_;
    die "a character beyond a byte in a body\n" if !utf8::downgrade($data, 1);
    return $data;
}

# Sends a response of three parts: status, headers, body.
sub respond {
    my ($request, $response) = @_;
    my ($status, $headers, $body) = @$response;
    my $head = head_of($status, $headers);
    if (ref $body eq 'ARRAY') {
        my $data = bytes_of(join '', map { defined $_ ? $_ : '' } @$body);
        if (length($head) + length $data <= STEP) {
            finish($request, WHOLE, $head . $data);
            return;
        }
        $request->{begun} = 1;
        send_part($request, $head . $data);
        finish($request, LAST, '');
        return;
    }
    local $/ = \(STEP - 0);
    my $first = 1;
    $request->{begun} = 1;
    eval {
        while (defined(my $data = ref $body eq 'GLOB' ? scalar readline $body : $body->getline)) {
            send_part($request, $first ? $head . bytes_of($data) : bytes_of($data));
            $first = 0;
        }
        send_part($request, $head) if $first;
        1;
    } or do {
        my $error = $@;
        ref $body eq 'GLOB' ? close $body : $body->close;
        die $error;
    };
    ref $body eq 'GLOB' ? close $body : $body->close;
    finish($request, LAST, '');
    return;
}

# The first line of an error that is not empty, as the value of a header.
sub summary {
    my ($error) = @_;
    my ($line) = grep { /\S/ } split /\n/, "$error";
    $line = join ' ', split ' ', substr($line // '1', 0, 300);
    $line =~ s/[[:cntrl:]]/?/g;
    utf8::encode($line) if utf8::is_utf8($line);
    return $line;
}

sub finish {
    my ($request, $kind, $payload) = @_;
    return if $request->{finished}++;
    delete $request->{connection}{requests}{ $request->{ident} };
    send_frame($request, $kind, $payload);
    return;
}

# The callback of a delayed response: takes a response, or a head, whose body the application then writes.
sub responder {
    my ($request) = @_;
    return sub {
        my ($response) = @_;
        die "the application responded twice\n" if $request->{responded}++;
        if (@$response > 2) {
            respond($request, $response);
            return;
        }
        $request->{begun} = 1;
        send_part($request, head_of(@$response));
        return bless { request => $request }, 'Dunlin::Psgi::Writer';
    };
}

sub environment {
    my ($request) = @_;
    # Length of the first part; names of the variables in the second part, an empty one, names and
    # values of the others; values of the second part.
    my ($first, $second) = unpack 'V/a a*', $request->{payload};
    my ($names, $others) = split /\0\0/, $first, 2;
    my %own;
    @own{ split /\0/, $names } = split /\0/, $second, -1;
    my %environment = (
        PATH_INFO => '',
        split(/\0/, $others, -1),
        %own,
        'psgi.version' => [1, 1],
        'psgi.errors' => \*STDERR,
        'psgi.input' => (bless { request => $request }, 'Dunlin::Psgi::Input'),
        'psgi.multithread' => '',
        'psgi.multiprocess' => 1,
        'psgi.run_once' => '',
        'psgi.nonblocking' => '',
        'psgi.streaming' => 1,
    );
    $environment{'psgi.url_scheme'} = $environment{REQUEST_SCHEME} || 'http';
    return \%environment;
}

sub run {
    my ($request) = @_;
    my $ok = eval {
        my $response = $application->(environment($request));
        if (ref $response eq 'CODE') {
            $response->(responder($request));
            die "the application sent no response\n" if !$request->{responded};
        } else {
            respond($request, $response);
        }
        1;
    };
    if (!$ok) {
        my $error = $@;
        my $is_cancelled = ref $error && Scalar::Util::blessed($error) && $error->isa('Dunlin::Psgi::Cancelled');
        print STDERR $error =~ /\n\z/ ? $error : "$error\n" if !$is_cancelled;
        if ($request->{begun}) {
            finish($request, LAST, $is_cancelled ? 'the client disconnected' : 'the application failed');
        } else {
            finish($request, WHOLE, "Status: 500\nDunlin-Failed: " . summary($error) . "\n\n");
        }
    }
    # The destructor of a writer that was not closed has aborted the response.
    return;
}

# The request's body.
package Dunlin::Psgi::Input;

sub fill {
    my ($request) = @_;
    Dunlin::Psgi::read_input() while !length $request->{body} && !$request->{ended} && !$request->{cancelled};
    die $cancelled if !length $request->{body} && !$request->{ended};
    return length $request->{body};
}

sub consume {
    my ($request, $size) = @_;
    my $data = substr $request->{body}, 0, $size, '';
    $request->{consumed} += length $data;
    if ($request->{consumed} >= Dunlin::Psgi::STEP && !$request->{ended}) {
        Dunlin::Psgi::send_frame($request, Dunlin::Psgi::BODY_ROOM, pack 'V', $request->{consumed});
        $request->{consumed} = 0;
    }
    return $data;
}

sub read {
    my ($self, undef, $size, $offset) = @_;
    $offset //= 0;
    $_[1] = '' if !defined $_[1];
    my $data = fill($self->{request}) ? consume($self->{request}, $size) : '';
    $_[1] .= "\0" x ($offset - length $_[1]) if $offset > length $_[1];
    $_[1] = substr($_[1], 0, $offset) . $data;
    return length $data;
}

sub getline {
    my ($self) = @_;
    my $line = '';
    while (fill($self->{request})) {
        my $at = defined $/ && !ref $/ && length $/ ? index $self->{request}{body}, $/ : -1;
        return $line . consume($self->{request}, $at + length $/) if $at >= 0;
        $line .= consume($self->{request}, length $self->{request}{body});
    }
    return length $line ? $line : undef;
}

sub getlines {
    my ($self) = @_;
    my @lines;
    while (defined(my $line = $self->getline)) { push @lines, $line }
    return @lines;
}

sub close { return 1 }

# Writes the body of a response in parts.
package Dunlin::Psgi::Writer;

sub write {
    my ($self, $data) = @_;
    Dunlin::Psgi::send_part($self->{request}, Dunlin::Psgi::bytes_of($data));
    return;
}

sub close {
    my ($self) = @_;
    Dunlin::Psgi::finish($self->{request}, Dunlin::Psgi::LAST, '');
    return;
}

sub DESTROY {
    my ($self) = @_;
    Dunlin::Psgi::finish($self->{request}, Dunlin::Psgi::LAST, 'the application released its response');
    return;
}

package Dunlin::Psgi;

sub load {
    my ($file) = @_;
    local $0 = $file;
    local @ARGV = ();
    my $path = $file =~ m{^/} ? $file : "./$file";
    my $loaded = do "$path";
    die "$file: $@" if $@;
    die "$file: $!\n" if !defined $loaded;
    my $callable = ref $loaded eq 'CODE' || Scalar::Util::blessed($loaded) && $loaded->can('to_app');
    die "$file does not end with a PSGI application\n" if !$callable;
    return ref $loaded eq 'CODE' ? $loaded : $loaded->to_app;
}

$SIG{TERM} = sub { exit 0 };
$SIG{INT} = $SIG{PIPE} = 'IGNORE';
STDERR->autoflush(1);
$listener = IO::Socket::UNIX->new_from_fd(0, 'r+') or die "standard input is no socket: $!\n";
$listener->blocking(0);
$select = IO::Select->new($listener);
$application = load($ARGV[0]);
while (1) {
    read_input();
    while (my $job = shift @jobs) {
        run($job);
        report($job->{connection}) if keys %INC != $reported;
    }
}
