"""A PSGI application with one page for each behaviour."""

import pytest


@pytest.fixture
def psgi(serve, tmp_path):  # noqa: F811
    """Starts a server with the application: `psgi(settings)`."""
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "app.psgi").write_text(APP)

    def start(settings="processes = 1", route="", application="app.psgi", more=""):
        return serve(
            more=f'[[site.route]]\npath = "/app/*"\n{route}\nscript = {{ kind = "psgi", '
            f'application = "{application}", directory = "{directory}", {settings} }}\n{more}'
        )

    start.directory = directory
    return start


APP = r'''
use strict;
use warnings;
use Digest::SHA ();
use JSON::PP ();

my %pages;
my $text = ['Content-Type' => 'text/plain'];
sub wait_for { my ($path) = @_; select undef, undef, undef, 0.002 until -e $path }

$pages{hello} = sub { [200, $text, ['hel', 'lo']] };
$pages{pid} = sub { [200, $text, [$$]] };
$pages{env} = sub {
    my ($env) = @_;
    my $body = '';
    1 while $env->{'psgi.input'}->read($body, 3, length $body);
    my %told = map { $_ => $env->{$_} } grep { !ref $env->{$_} } keys %$env;
    my $version = join '.', @{ $env->{'psgi.version'} };
    return [200, ['Content-Type' => 'application/json'], [JSON::PP->new->latin1->encode(
        { env => \%told, body => $body, version => $version })]];
};
$pages{total} = sub {
    my ($env) = @_;
    my ($digest, $part) = (Digest::SHA->new(256), '');
    while ($env->{'psgi.input'}->read($part, 100_000)) { $digest->add($part); $part = '' }
    return [200, $text, [$digest->hexdigest]];
};
$pages{lines} = sub {
    my ($env) = @_;
    my @lines = $env->{'psgi.input'}->getlines;
    chomp @lines;
    return [200, $text, [join '|', @lines]];
};
$pages{ignore} = sub { [200, $text, ['ignored']] };
$pages{large} = sub { [200, $text, [map { chr(65 + $_ % 26) x 10_000 } 0 .. 299]] };
$pages{file} = sub { open my $file, '<', 'app.psgi' or die $!; [200, $text, $file] };
$pages{cookies} = sub { [200, [@$text, 'Set-Cookie' => 'a=1', 'Set-Cookie' => 'b=2'], []] };
$pages{later} = sub { sub { my ($respond) = @_; $respond->([202, $text, ['later']]) } };
$pages{events} = sub {
    my ($env) = @_;
    return sub {
        my ($respond) = @_;
        my $writer = $respond->([200, ['Content-Type' => 'text/event-stream']]);
        for my $number (0 .. 2) {
            $writer->write("data: $number\n\n");
            wait_for($env->{QUERY_STRING} . $number);
        }
        $writer->close;
    };
};
$pages{endless} = sub {
    my ($env) = @_;
    return sub {
        my $writer = $_[0]->([200, $text]);
        my $ok = eval { $writer->write('x' x 1000) while 1; 1 };
        open my $file, '>', $env->{QUERY_STRING};
        die $@;
    };
};
$pages{fails} = sub { die "on purpose\n" };
$pages{fails_late} = sub {
    return sub { my $writer = $_[0]->([200, $text]); $writer->write('x' x 300_000); die "late on purpose\n" };
};
$pages{unfinished} = sub { return sub { $_[0]->([200, $text])->write('part') } };
$pages{nothing} = sub { return sub { } };
$pages{split} = sub { [200, ['X-A' => "b\r\nSet-Cookie: evil=1"], ['']] };
$pages{wide} = sub { [200, $text, ["\x{263a}"]] };
$pages{says} = sub { print { $_[0]{'psgi.errors'} } "said to the log\n"; [200, $text, ['ok']] };
$pages{spin} = sub { 1 while 1 };

sub {
    my ($env) = @_;
    my ($name) = $env->{PATH_INFO} =~ m{^/(\w+)};
    return $pages{ $name // 'hello' }->($env);
};
'''
