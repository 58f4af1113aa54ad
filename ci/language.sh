#!/usr/bin/env bash
# Checks the language of the code: no phrases that hide their noun, no type name twice in a crate, no type with the name of
# a public type of another crate, and no measured figures in the header of a module. Prints file:line and the rule. Exits with 1 if there is a finding.
# ci/language.sh [--count] [CRATE...]
# By default it checks all crates, and the pages in the root and in docs. --count prints the number of findings of each
# crate and rule.
set -euo pipefail
cd "$(dirname "$0")/.."
exec perl - "$@" <<'PERL'
use strict;
use warnings;

my @crates = ((map { s{^crates/}{}r } glob 'crates/*'), qw(examples benches));
my @pages = glob '*.md docs/*.md docs/decisions/*.md';

# Types that may have the same name as a public type of another crate, and the reasons.
my %shared_types = (
    Framing => 'How the end of a body is found: of a request in the codec, of an answer in the load, of both in the broken servers.',
    Header => 'A header field of a request in the core, the first line of a journal in the instrument.',
    Key => 'The key of a cell of an experiment.',
    Report => 'The result of an experiment; the load has the result of one load.',
);
# TLS has one form with the feature and one without, of which one is built.
my %repeated_types = map { $_ => 1 } qw(TlsBuffers TlsSession);

my $phrase = qr/\b(who|whoever|whose|whom|somebody|someone|everybody|everyone|nobody|anybody|anyone|so[ ]many|beside|(?<!half[ ])of[ ]it|of[ ]theirs
    |at[ ]the[ ]most|knock(?:s|ed|ing)?|as[ ]many[ ]as[ ]there[ ]are|where[ ](?:there|none|a|an|it|one))\b/xi;

# Figures stand in pages that are spliced from records. A header names the record and the direction. So the paragraphs of
# a header that say when a strategy wins and loses have no numbers and no shares, and the rest has no measured times.
my $figure = qr/((?<![\w\/.])\d[\d.,]*|\b(?:half|third|quarter|fifth|tenth) of\b|\b(?:times|twice) (?:as|the)\b)/;
my $measured = qr/(\b\d[\d.,]* (?:us|ns)\b)/;

# figures PARAGRAPH: returns the figures in a paragraph of a header. Names of records, code and titles are in quotes.
sub figures {
    my ($text) = @_;
    my $rule = $text =~ /\*(?:Wins|Loses) when\*/ ? $figure : $measured;
    $text =~ s/`[^`]*`|"[^"]*"//g;
    return $text =~ /$rule/g;
}

# The rule finds a planted figure, and allows what is none.
for my $planted ('it answers 0.8 of the requests', 'it does 44.4 M gets a second', 'an idle connection takes 761 bytes',
    'all are within 5 %', 'a fifth of the requests', 'it takes three times as long') {
    die "the rule for figures does not find \"$planted\"\n" unless figures("*Wins when* jobs are short: $planted.");
}
die "the rule for figures does not find a measured time\n" unless figures('Cost: a system call, some 5 to 10 us.');
for my $allowed ('*Loses when* a million ids are new: `scc` is ahead (`stores-workers`). Records: `docs/results/2026-11-25`.',
    '*Wins when* HTTP/2 is needed.', 'Cost: two allocations, 4 KiB, and a wait of at most 50 ms.') {
    die "the rule for figures finds one in \"$allowed\"\n" if figures($allowed);
}

my $counts = @ARGV && $ARGV[0] eq '--count' && shift @ARGV;
@crates = @ARGV if @ARGV;
my (%findings, $total);
my %crates_of; # by type name and crate: the place
my %is_public; # type names that are public in some crate
$total = 0;

# found CRATE PLACE RULE TEXT: counts and prints a finding.
sub found {
    my ($crate, $place, $rule, $text) = @_;
    $findings{$crate}{$rule}++;
    $total++;
    return if $counts;
    $text =~ s/^\s+|\s+$//g;
    printf "%s: %s: %s\n", $place, $rule, substr($text, 0, 140);
}

# prose LINE: returns the natural language in a line of Rust: its comment and its strings. Words in backquotes are code.
sub prose {
    my ($line) = @_;
    my $text = '';
    while ($line =~ m{\G(?: "((?:[^"\\]|\\.)*)("|$) | (//.*)$ | '(?:[^'\\]|\\.[^']*)' | . )}gxs) {
        $text .= " $1" if defined $1;
        $text .= " $3" if defined $3;
    }
    $text =~ s/`[^`]*`//g;
    return $text;
}

sub source {
    my ($crate, $file, $types) = @_;
    open my $in, '<', $file or die "$file: $!";
    my ($in_tests, $pending) = ($file =~ m{(^|/)tests(/|\.rs$)}, 0);
    while (my $line = <$in>) {
        chomp $line;
        my $place = "$file:$.";
        my $prose = prose($line);
        while ($prose =~ /$phrase/g) { found($crate, $place, "phrase \"\L$1\E\"", $line) }
        (my $code = $line) =~ s{//.*}{};
        $in_tests = 1 if $pending && $code =~ /^mod \w+ \{/;
        $pending = $code =~ /^#\[cfg\(.*\btest\b/;
        if ($code =~ /^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union|type) (\w+)/) {
            my $name = $1;
            # Associated types are indented. A model of the standard library has the names of the standard library.
            if (!$in_tests && $file !~ m{/sync/|/sync\.rs$|/tests/} && !($code =~ /^\s+type /)) {
                push @{$types->{$name}}, $place;
                $crates_of{$name}{$crate} //= $place;
                $is_public{$name} = 1 if $code =~ /^\s*pub /;
            }
        }
        while ($code =~ /\b(?:fn|mod|const|static) (\w+)\b/g) {
            (my $words = $1) =~ tr/_/ /;
            found($crate, $place, "phrase in a name \"$1\"", $line) if $words =~ /$phrase/;
        }
    }
}

# header CRATE FILE: checks the paragraphs of the module's header.
sub header {
    my ($crate, $file) = @_;
    open my $in, '<', $file or die "$file: $!";
    my ($paragraph, $start) = ('', 0);
    while (my $line = <$in>) {
        my $text = $line =~ m{^//! (.+)} ? $1 : '';
        $start = $. unless length $paragraph;
        $paragraph .= " $text" if length $text;
        next if length $text;
        found($crate, "$file:$start", "figure in a header \"$_\"", $paragraph) for figures($paragraph);
        $paragraph = '';
    }
}

for my $crate (@crates) {
    my $top = -d "crates/$crate" ? "crates/$crate" : $crate;
    my %types;
    my @files = grep { !m{^benches/(peers|ladder|engines)/} } split /\n/, `git ls-files '$top/*.rs'`;
    for (grep { -e } @files) {
        source($crate, $_, \%types);
        header($crate, $_);
    }
    for my $name (sort keys %types) {
        my @places = @{$types{$name}};
        my %in_file = map { s/:\d+$//r => 1 } @places; # a file may define a type once per platform
        next if $repeated_types{$name} || keys %in_file < 2;
        found($crate, $places[0], "type name used twice in a crate \"$name\"", join ', ', @places[1 .. $#places]);
    }
}
for my $name (sort keys %is_public) {
    next if $shared_types{$name};
    my ($crate, @others) = grep { $crates_of{$name}{$_} } @crates;
    found($crate, $crates_of{$name}{$crate}, "name of a public type used in several crates \"$name\"", join ', ', map { $crates_of{$name}{$_} } @others)
        if @others;
}
for my $page (@pages) {
    open my $in, '<', $page or die "$page: $!";
    my $spliced = 0; # in a table that is generated from a record
    while (my $line = <$in>) {
        $spliced = $line =~ /<!-- end -->/ ? 0 : $spliced || $line =~ /^<!-- (?:table|claims|chart) /;
        next if $spliced;
        (my $text = $line) =~ s/`[^`]*`//g;
        while ($text =~ /$phrase/g) { found($page, "$page:$.", "phrase \"\L$1\E\"", $line) }
    }
}

if ($counts) {
    for my $crate (sort keys %findings) {
        my %kinds;
        for my $rule (keys %{$findings{$crate}}) {
            (my $kind = $rule) =~ s/ "[^"]*"$//;
            $kinds{$kind} += $findings{$crate}{$rule};
        }
        printf "%-24s %s\n", $crate, join ', ', map { "$_: $kinds{$_}" } sort keys %kinds;
    }
}
if ($total) {
    print STDERR "ci/language.sh: $total findings. Write short sentences with the noun first; docs/GLOSSARY.md has the terms.\n";
    exit 1;
}
PERL
