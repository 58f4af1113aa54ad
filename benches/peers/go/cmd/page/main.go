// Command page is the server of the experiment "a page that sometimes waits", on net/http: a goroutine for each
// connection, which sleeps, reads the file and writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"polyserve/peers/internal/library"
	"polyserve/peers/internal/run"
)

// server counts all requests of the process. Every n-th request waits.
type server struct {
	library.HTTP
	file  string
	every uint64
	wait  time.Duration
}

func newServer(file string, every uint64, wait time.Duration) (*server, error) {
	if _, err := os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("-page-file: %w", err)
	}
	s := &server{file: file, every: every, wait: wait}
	server := &http.Server{Handler: http.HandlerFunc(s.answer)}
	accept := func(listener net.Listener) error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	s.Init(accept, func(limit context.Context) {
		if server.Shutdown(limit) != nil {
			server.Close()
		}
	})
	return s, nil
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	nth := s.Begun.Add(1)
	defer s.Answered.Add(1)
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	if s.every > 0 && nth%s.every == 0 {
		time.Sleep(s.wait)
	}
	page, err := os.ReadFile(s.file)
	if err != nil {
		http.Error(w, "the file of the page cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(page) // fails if the client has disconnected
}

func main() {
	var file string
	var every uint64
	var wait time.Duration
	flags := func(flags *flag.FlagSet) {
		flags.StringVar(&file, "page-file", "", "the file, which is read for each request")
		flags.Uint64Var(&every, "page-every", 10, "one request in this number waits; 0 is none")
		flags.DurationVar(&wait, "page-wait", 2*time.Second, "how long it waits")
	}
	os.Exit(run.Main("page", flags, func(options run.Options) (run.Server, error) {
		if options.Workers > 0 {
			runtime.GOMAXPROCS(options.Workers)
		}
		return newServer(file, every, wait)
	}))
}
