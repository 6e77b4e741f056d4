# Runs when perl starts to read its script, before the script's first line (-M). It loads modules
# once; then the preloaded library creates a process for each request (preload.c), which continues
# from here and reads, compiles and runs the script as usual. No part of the script runs
# before. This code is passed as one line, without lines that begin with #. It leaves no lexical variable, and no names but those of the modules.

package Dunlin::Warm;
my $script = $ENV{DUNLIN_WARM_SCRIPT};
my @modules = split ' ', $ENV{DUNLIN_WARM_PRELOAD};

# Modules that the script loads in lines of their own, if they come with perl or are
# installed: a directory that the script adds to @INC could hold a module of the same name.
if (open my $file, '<', $script) {
    my ($line, @found, $adds);
    while (defined($line = <$file>)) {
        last if $line =~ /^__(END|DATA)__/;
        $adds = 1 if $line =~ /\@INC|^\s*use\s+(lib|FindBin|local::lib)\b/;
        push @found, $1 if $line =~ /^use\s+([A-Za-z]\w*(?:::\w+)*)\s*[^;]*;/;
    }
    push @modules, grep { is_core($_) } @found unless $adds;
    close $file;
}

# Modules that come with perl: others may read the environment when they are loaded.
sub is_core {
    my ($name) = @_;
    $name =~ s{::}{/}g;
    require Config;
    # By its name: perl would warn the script's author about a variable that is used only once.
    my $config = \%{"Config::Config"};
    return grep { -f "$config->{$_}/$name.pm" } qw(privlibexp archlibexp);
}

for my $module (@modules) {
    # By a match, because with -T only a match untaints a name for loading.
    my ($path) = "$module.pm" =~ /^([\w:.]+)$/ or next;
    $path =~ s{::}{/}g;
    next if eval { local $SIG{__DIE__}; require $path; 1 };
    my $error = $@;
    print STDERR "preload: $module: $error" if grep { $_ eq $module } split ' ', $ENV{DUNLIN_WARM_PRELOAD};
}

%ENV = (
    DUNLIN_WARM_SCRIPT => $script,
    DUNLIN_WARM_NOW => join("\n", grep { defined && m{^/} && !/\n/ } values %INC),
);
CORE::fork();

# From here on, in the process of a request. The result of split is as tainted as its argument.
{
    local $/;
    open my $file, '<&=', 99 or die "request: $!";
    my @fields = split /\0/, scalar(<$file>), -1;
    close $file;
    pop @fields;
    my (undef, $count) = splice @fields, 0, 2;
    @ARGV = splice @fields, 0, $count;
    %ENV = map { split /=/, $_, 2 } @fields;
}
srand;
$@ = '';
$! = 0;
%Dunlin::Warm:: = ();
