// Package control has what the instrument needs from a server and no listing has: flags, the address as the first line of
// output, and the number of answers as the last one. It is the only deviation that all servers of this module share.
package control

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Answered is the number of answers.
var Answered atomic.Uint64

// Flags are the settings of a server.
type Flags struct {
	Workers int    // the size of the pool
	Print   string // the file that gets the published lines; empty for none
	listen  string
	stdin   bool
	out     io.Writer
}

// Parse reads the command line. With -print, standard output becomes that file, so fmt.Printf writes there.
func Parse() *Flags {
	f := &Flags{out: os.Stdout}
	flag.IntVar(&f.Workers, "workers", 0, "the size of the pool; 0 is one for each core")
	flag.StringVar(&f.Print, "print", "", "the file that gets a line for each request")
	flag.StringVar(&f.listen, "listen", "127.0.0.1:0", "the address to listen on")
	flag.BoolVar(&f.stdin, "until-stdin-ends", false, "end with standard input")
	flag.Parse()
	if flag.NArg() > 0 || f.Workers < 0 {
		flag.Usage()
		os.Exit(2)
	}
	if f.Print != "" {
		file, err := os.OpenFile(f.Print, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Stdout = file
	}
	return f
}

// Listen returns the listener, and prints its address.
func (f *Flags) Listen() (net.Listener, error) {
	listener, err := net.Listen("tcp4", f.listen)
	if err == nil {
		_, err = fmt.Fprintf(f.out, "listening on http://%s\n", listener.Addr())
	}
	return listener, err
}

// AwaitEnd returns at the first SIGINT or SIGTERM, or at the end of standard input.
func (f *Flags) AwaitEnd() {
	ended := make(chan os.Signal, 2)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	if f.stdin {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			ended <- os.Interrupt
		}()
	}
	<-ended
}

// PrintCounts prints the last line.
func (f *Flags) PrintCounts() {
	fmt.Fprintf(f.out, "{\"answered\":%d,\"cut\":0,\"stuck\":0}\n", Answered.Load())
}
