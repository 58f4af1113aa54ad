package run

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func parse(line string) (Options, string, error) {
	var kind string
	options, err := Parse("any", strings.Fields(line), func(flags *flag.FlagSet) {
		flags.SetOutput(io.Discard)
		flags.StringVar(&kind, "kind", "one", "")
	})
	return options, kind, err
}

func TestCommandLines(t *testing.T) {
	options, kind, err := parse("-workers 3 --listen=127.0.0.1:8001 -until-stdin-ends -json -kind=other")
	if want := (Options{"127.0.0.1:8001", 3, true, true, "", ""}); err != nil || options != want || kind != "other" {
		t.Error(options, kind, err)
	}
	options, kind, err = parse("")
	if want := (Options{Listen: "127.0.0.1:0"}); err != nil || options != want || kind != "one" {
		t.Error(options, kind, err)
	}
	for _, wrong := range []string{"-workers=-1", "-workers 100001", "-workers x", "-pool 3", "now"} {
		if _, _, err := parse(wrong); err == nil {
			t.Error(wrong)
		}
	}
}

// idle is a server that keeps its listener and never answers.
type idle struct{ listener chan net.Listener }

func (s idle) Serve(listener net.Listener) error {
	s.listener <- listener
	select {}
}

func (s idle) Drain(time.Duration) Counts {
	(<-s.listener).Close()
	return Counts{Answered: 5, Cut: 1}
}

func TestItSaysWhereItListensAndWhatItAnswered(t *testing.T) {
	for asJSON, want := range map[bool][2]string{
		false: {"listening on http://127.0.0.1:", "answered 5, cut 1, stuck 0"},
		true:  {`{"listening":"http://127.0.0.1:`, `{"answered":5,"cut":1,"stuck":0}`},
	} {
		var out strings.Builder
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGINT
		server := idle{make(chan net.Listener, 1)}
		if err := serve(server, Options{Listen: "127.0.0.1:0", JSON: asJSON}, signals, &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], want[0]) || lines[1] != want[1] || lines[2] != "" {
			t.Errorf("%q", lines)
		}
	}
}

func TestAServerThatCannotListenSaysSo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	server := idle{make(chan net.Listener, 1)}
	err = serve(server, Options{Listen: taken.Addr().String()}, make(chan os.Signal), io.Discard)
	if err == nil || !strings.Contains(fmt.Sprint(err), taken.Addr().String()) {
		t.Error(err)
	}
}
