// Package library is what the servers on other people's libraries share: the entities, what -workers means, and how a drain
// is waited for and counted.
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
	"polyserve/peers/internal/store"
)

// Main runs the server that build makes, to the process's end. Its workers are as many cores.
func Main(name string, build func(*service.Service) run.Server) {
	os.Exit(run.Main(name, nil, func(options run.Options) (run.Server, error) {
		if options.Workers > 0 {
			runtime.GOMAXPROCS(options.Workers)
		}
		entities, err := Service()
		if err != nil {
			return nil, err
		}
		return build(entities), nil
	}))
}

// Service is the service over the published store.
func Service() (*service.Service, error) {
	entities, err := store.New("rwmutex")
	if err != nil {
		return nil, err
	}
	return service.New(entities), nil
}

// HTTP is a library's server, and the requests that it hands to the service; those that it refuses by itself are not
// counted.
type HTTP struct {
	Begun, Answered atomic.Uint64

	accept  func(net.Listener) error
	stop    func(context.Context)
	drained chan struct{}
}

// Init says how the library accepts, until it is stopped, and how it is stopped by the context's end.
func (h *HTTP) Init(accept func(net.Listener) error, stop func(context.Context)) {
	h.accept, h.stop, h.drained = accept, stop, make(chan struct{})
}

// Serve accepts until the drain has ended.
func (h *HTTP) Serve(listener net.Listener) error {
	if err := h.accept(listener); err != nil {
		return err
	}
	<-h.drained
	return nil
}

// Drain stops the library within the grace, and counts.
func (h *HTTP) Drain(grace time.Duration) run.Counts {
	defer close(h.drained)
	limit, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	h.stop(limit)
	answered := h.Answered.Load() // before the other: what is answered meanwhile was begun
	return run.Counts{Answered: answered, Cut: h.Begun.Load() - answered}
}
