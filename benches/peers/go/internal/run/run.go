// Package run has the start and the end of the servers: the command line, the line with the address, and the drain.
//
// Invariant: the first SIGINT or SIGTERM drains the server, and the process exits with code 0. A second signal exits at
// once. With -until-stdin-ends, the end of standard input counts as a signal, so a server does not outlive its parent
// process.
package run

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Grace is the max time that a drain waits for requests in progress.
const Grace = 10 * time.Second

// MostWorkers is the max value of -workers.
const MostWorkers = 100_000

// Counts is the result of a server.
type Counts struct {
	Answered uint64 `json:"answered"` // requests with a complete answer
	Cut      uint64 `json:"cut"`      // connections with an unanswered request at the end of the grace
	Stuck    uint64 `json:"stuck"`    // connections that did not end even after that
}

// Server is a server that can be drained.
type Server interface {
	// Serve accepts connections until Drain begins. Drain closes the listener.
	Serve(net.Listener) error
	// Drain answers the requests in progress, within the grace, and returns the counts.
	Drain(grace time.Duration) Counts
}

// Options has the flags that every server has.
type Options struct {
	Listen         string
	Workers        int // 0 if not set
	JSON           bool
	UntilStdinEnds bool
	TLSCert        string // the file of a certificate; without one, the server does not speak TLS
	TLSKey         string
}

// Parse parses a command line. extra adds the server's own flags.
func Parse(name string, words []string, extra func(*flag.FlagSet)) (Options, error) {
	var options Options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&options.Listen, "listen", "127.0.0.1:0", "where it listens; port 0 is any that is free")
	flags.IntVar(&options.Workers, "workers", 0, "how many serve; 0 is the server's own choice")
	flags.BoolVar(&options.JSON, "json", false, "say the two lines as JSON")
	flags.BoolVar(&options.UntilStdinEnds, "until-stdin-ends", false, "drain when standard input ends too")
	flags.StringVar(&options.TLSCert, "tls-cert", "", "speak TLS with the certificate in this file")
	flags.StringVar(&options.TLSKey, "tls-key", "", "the file of the certificate's key")
	if extra != nil {
		extra(flags)
	}
	if err := flags.Parse(words); err != nil {
		return options, err
	}
	if flags.NArg() > 0 {
		return options, fmt.Errorf("%q is not known", flags.Arg(0))
	}
	if options.Workers < 0 || options.Workers > MostWorkers {
		return options, fmt.Errorf("-workers %d is not from 1 to %d", options.Workers, MostWorkers)
	}
	return options, nil
}

// Main runs a server with the flags of the command line. It returns the exit code: 2 if the command line is invalid, 1
// if the server fails.
func Main(name string, extra func(*flag.FlagSet), build func(Options) (Server, error)) int {
	options, err := Parse(name, os.Args[1:], extra)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var server Server
	if err == nil {
		server, err = build(options)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 2
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if options.UntilStdinEnds {
		go func() {
			io.Copy(io.Discard, os.Stdin) // an error also ends the input
			signals <- syscall.SIGTERM
		}()
	}
	if err := serve(server, options, signals, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// serve prints the address, serves until a signal, drains, and prints the counts.
func serve(server Server, options Options, signals <-chan os.Signal, out io.Writer) error {
	listener, err := net.Listen("tcp", options.Listen)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	if options.TLSCert != "" {
		certificate, err := tls.LoadX509KeyPair(options.TLSCert, options.TLSKey)
		if err != nil {
			return err
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}})
		url = "https://" + listener.Addr().String()
	}
	said := any(struct {
		Listening string `json:"listening"`
	}{url})
	if err := say(out, options.JSON, "listening on "+url, said); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("it stopped serving: %w", err)
	case <-signals:
	}
	go func() {
		<-signals
		os.Exit(130)
	}()
	counts := server.Drain(Grace)
	text := fmt.Sprintf("answered %d, cut %d, stuck %d", counts.Answered, counts.Cut, counts.Stuck)
	return say(out, options.JSON, text, counts)
}

// say prints a line, as text or as JSON.
func say(out io.Writer, asJSON bool, text string, value any) error {
	buffered := bufio.NewWriter(out)
	if asJSON {
		if err := json.NewEncoder(buffered).Encode(value); err != nil {
			return err
		}
		return buffered.Flush()
	}
	fmt.Fprintln(buffered, text)
	return buffered.Flush()
}
