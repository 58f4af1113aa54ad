// Package twin is the twin of the published server: an accept loop puts connections on a channel, N goroutines take them
// from there, and each serves one connection at a time to its end. A WaitGroup is waited for in the end.
//
// The channel is unbuffered: a connection is handed over when a goroutine is free, and waits in the kernel's queue until
// then, as in the published one. A goroutine keeps a connection that its client keeps, but not while another one waits:
// then it says Connection: close, and an idle one is closed.
//
// Invariant: at most N connections are served at a time, and one that waits is reached though N others are kept and idle.
// Cost: a hand-over for each connection; for each request a few deadlines and a look whether somebody waits.
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

// Timeouts as polyserve's servers have them.
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
	waiting     atomic.Int64 // connections that no goroutine has taken yet
	draining    atomic.Bool
	workers     []*worker
	turn        int // of the accept loop: who was interrupted last
	running     sync.WaitGroup
	listener    atomic.Pointer[net.TCPListener]
	accepted    chan struct{} // closed when the accept loop has ended
	cut         chan struct{} // closed when the grace is over
}

// New is a server of so many goroutines, which wait for connections at once.
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

// Serve puts connections on the channel until the listener is drained. An accept that fails for want of descriptors is
// tried again.
func (s *Server) Serve(listener net.Listener) error {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return errors.New("it is no TCP listener")
	}
	s.listener.Store(tcp)
	defer close(s.accepted)
	if s.draining.Load() {
		tcp.SetDeadline(time.Now()) // Drain may have looked before the listener was there
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

// acceptRest takes what the kernel still has, and closes the listener. Clients that come without end are not waited for.
func (s *Server) acceptRest(tcp *net.TCPListener) {
	defer tcp.Close()
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		// A deadline that has passed would fail though somebody waits.
		tcp.SetDeadline(time.Now().Add(5 * time.Millisecond))
		connection, err := tcp.Accept()
		if err != nil {
			return
		}
		s.hand(connection)
	}
}

// hand puts a connection on the channel. Where no goroutine is free, an idle one is made to let go of its own.
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

// interruptOne ends the wait of one goroutine on a kept connection, in turn. One that begins to wait later sees that
// somebody waits.
func (s *Server) interruptOne() {
	for range s.workers {
		s.turn = (s.turn + 1) % len(s.workers)
		if s.workers[s.turn].interrupt(kept) {
			return
		}
	}
}

// Drain lets go of the idle connections and waits for the goroutines.
func (s *Server) Drain(grace time.Duration) run.Counts {
	s.draining.Store(true)
	tcp := s.listener.Load()
	if tcp == nil {
		return run.Counts{} // nothing was accepted ever
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
		<-ended // nothing but a socket is waited for anywhere, and these are closed
	}
	for _, w := range s.workers {
		counts.Answered += w.answered
		counts.Cut += w.cut
	}
	return counts
}

// Begun is how many requests have begun and have no answer yet.
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
