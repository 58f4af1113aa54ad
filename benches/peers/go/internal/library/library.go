// Package library has the parts that the servers on HTTP libraries share: the entities, the meaning of -workers, and
// the drain with its counts.
package library

import (
	"context"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"polyserve/peers/internal/run"
	"polyserve/peers/internal/service"
)

// Main runs the server that build returns, and exits the process. -workers sets GOMAXPROCS.
func Main(name string, build func(*service.Service) run.Server) {
	os.Exit(run.Main(name, nil, func(options run.Options) (run.Server, error) {
		if options.Workers > 0 {
			runtime.GOMAXPROCS(options.Workers)
		}
		return build(service.New()), nil
	}))
}

// HTTP is the server of a library, with the counts of the requests that reach the service. Requests that the library
// refuses itself are not counted.
type HTTP struct {
	Begun, Answered atomic.Uint64

	accept  func(net.Listener) error
	stop    func(context.Context)
	drained chan struct{}
}

// Init sets how the library accepts and stops. accept returns when the library is stopped. stop stops the library, at
// the latest when the context ends.
func (h *HTTP) Init(accept func(net.Listener) error, stop func(context.Context)) {
	h.accept, h.stop, h.drained = accept, stop, make(chan struct{})
}

// Serve accepts connections until the drain has ended.
func (h *HTTP) Serve(listener net.Listener) error {
	if err := h.accept(listener); err != nil {
		return err
	}
	<-h.drained
	return nil
}

// Drain stops the library within the grace, and returns the counts.
func (h *HTTP) Drain(grace time.Duration) run.Counts {
	defer close(h.drained)
	limit, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	h.stop(limit)
	answered := h.Answered.Load() // read before Begun, so that Begun is never smaller
	return run.Counts{Answered: answered, Cut: h.Begun.Load() - answered}
}
