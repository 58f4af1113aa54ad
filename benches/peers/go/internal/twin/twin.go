// Package twin is the twin of the published server. An accept loop sends connections to a channel. N goroutines receive
// them, and each serves one connection at a time until it ends. At the end, a WaitGroup waits for the goroutines.
//
// The channel is unbuffered, as in the published server: a connection is handed over when a goroutine is free, and
// waits in the kernel's backlog until then. A connection is kept alive only while no other one waits. If one waits, the
// goroutine answers with Connection: close, and an idle connection is closed.
//
// Invariant: at most N connections are served at a time, and a waiting connection is served even if N others are kept
// alive and idle. Cost: a hand-over per connection; per request a few deadlines and a check for waiting connections.
package twin

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"polyserve/peers/internal/run"
	"polyserve/peers/internal/service"
)

// The same timeouts as in polyserve's servers.
const (
	headTimeout  = 10 * time.Second
	bodyTimeout  = 30 * time.Second
	idleTimeout  = 60 * time.Second
	writeTimeout = 30 * time.Second
)

// Server is the twin.
type Server struct {
	service     *service.Service
	connections chan net.Conn
	waiting     atomic.Int64 // connections that no goroutine has received yet
	draining    atomic.Bool
	workers     []*worker
	turn        int // used by the accept loop: the worker that was interrupted last
	running     sync.WaitGroup
	listener    atomic.Pointer[net.TCPListener]
	accepted    chan struct{} // closed when the accept loop has ended
	cut         chan struct{} // closed at the end of the grace
}

// New returns a server and starts its goroutines, which wait for connections.
func New(service *service.Service, goroutines int) *Server {
	s := &Server{
		service:     service,
		connections: make(chan net.Conn),
		accepted:    make(chan struct{}),
		cut:         make(chan struct{}),
	}
	for range goroutines {
		w := newWorker(s)
		s.workers = append(s.workers, w)
		s.running.Go(w.run)
	}
	return s
}

// Serve sends connections to the channel until the server is drained. If an accept fails, for example without free file
// descriptors, it is retried.
func (s *Server) Serve(listener net.Listener) error {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return errors.New("it is no TCP listener")
	}
	s.listener.Store(tcp)
	defer close(s.accepted)
	if s.draining.Load() {
		tcp.SetDeadline(time.Now()) // Drain may have run before the listener was set
	}
	for {
		connection, err := tcp.Accept()
		if err == nil {
			s.hand(connection)
			continue
		}
		if s.draining.Load() {
			s.acceptRest(tcp)
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// acceptRest accepts the backlog of the kernel, and closes the listener. It stops after 100 ms if clients keep
// connecting.
func (s *Server) acceptRest(tcp *net.TCPListener) {
	defer tcp.Close()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		// With a deadline in the past, Accept would fail even if a connection waits.
		tcp.SetDeadline(time.Now().Add(5 * time.Millisecond))
		connection, err := tcp.Accept()
		if err != nil {
			return
		}
		s.hand(connection)
	}
}

// hand sends a connection to the channel. If no goroutine is free, it makes one close its idle connection.
func (s *Server) hand(connection net.Conn) {
	select {
	case s.connections <- connection:
		return
	default:
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	s.interruptOne()
	select {
	case s.connections <- connection:
	case <-s.cut:
		connection.Close()
	}
}

// interruptOne interrupts one goroutine that waits on an idle connection, in turn. A goroutine that begins to wait
// later checks for waiting connections itself.
func (s *Server) interruptOne() {
	for range s.workers {
		s.turn = (s.turn + 1) % len(s.workers)
		if s.workers[s.turn].interrupt(kept) {
			return
		}
	}
}

// Drain closes the idle connections and waits for the goroutines.
func (s *Server) Drain(grace time.Duration) run.Counts {
	s.draining.Store(true)
	tcp := s.listener.Load()
	if tcp == nil {
		return run.Counts{} // no connection was accepted
	}
	tcp.SetDeadline(time.Now())
	for _, w := range s.workers {
		w.interrupt(fresh, kept)
	}
	ended := make(chan struct{})
	go func() {
		<-s.accepted
		close(s.connections)
		s.running.Wait()
		close(ended)
	}()
	var counts run.Counts
	select {
	case <-ended:
	case <-time.After(grace):
		close(s.cut)
		for _, w := range s.workers {
			w.abort()
		}
		<-ended // the goroutines only block on sockets, and these are closed
	}
	for _, w := range s.workers {
		counts.Answered += w.answered
		counts.Cut += w.cut
	}
	return counts
}

// Begun returns the number of requests in progress.
func (s *Server) Begun() int {
	begun := 0
	for _, w := range s.workers {
		w.lock.Lock()
		if w.state == busy {
			begun++
		}
		w.lock.Unlock()
	}
	return begun
}
