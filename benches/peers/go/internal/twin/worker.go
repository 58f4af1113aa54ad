package twin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"polyserve/peers/internal/service"
	"polyserve/peers/internal/wire"
)

// state is the state of a goroutine's connection.
type state int

const (
	none  state = iota // no connection
	fresh              // waits for the first byte of the first request
	kept               // waits for the first byte of another request
	busy               // a request is in progress
)

// worker is a goroutine and the connection that it serves.
type worker struct {
	server   *Server
	in       *bufio.Reader
	out      []byte
	space    []byte
	answered uint64 // read after the goroutine has ended
	cut      uint64

	lock       sync.Mutex // guards the fields below, which other goroutines read
	connection net.Conn
	state      state
	told       bool // to close an idle connection
	aborted    bool
}

func newWorker(server *Server) *worker {
	return &worker{server: server, in: bufio.NewReaderSize(nil, service.MaxHead)}
}

// run serves connections until the channel is closed.
func (w *worker) run() {
	for connection := range w.server.connections {
		w.in.Reset(connection)
		w.serve(connection)
		w.enter(none, nil)
		connection.Close()
	}
}

// enter sets the state and the connection. It returns false after abort: the goroutine must stop.
func (w *worker) enter(state state, connection net.Conn) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.state, w.connection, w.told = state, connection, false
	return !w.aborted
}

// interrupt ends the wait if the goroutine is in one of these states. It returns false if it is not.
func (w *worker) interrupt(states ...state) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, state := range states {
		if w.state == state && !w.told {
			w.told = true
			w.connection.SetReadDeadline(time.Now()) // the goroutine takes the lock before it sets another deadline
			return true
		}
	}
	return false
}

// abort closes the connection in any state.
func (w *worker) abort() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.aborted = true
	if w.state == busy {
		w.cut++ // only Drain reads cut, after the goroutine has ended
	}
	if w.connection != nil {
		w.connection.Close()
	}
}

// serve answers the requests of a connection.
func (w *worker) serve(connection net.Conn) {
	requests := wire.NewReader(w.in, wire.Limits{Head: service.MaxHead, Body: service.MaxBody, Fields: 100}, func() error {
		w.out = append(w.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
		connection.SetReadDeadline(time.Now().Add(bodyTimeout))
		return w.flush(connection, 0)
	})
	pending := uint64(0) // answers that are not flushed yet
	for first := true; ; first = false {
		if w.in.Buffered() == 0 {
			if w.flush(connection, pending) != nil {
				return
			}
			pending = 0
			if !w.await(connection, first) {
				return
			}
		}
		request, err := requests.Next()
		if err != nil {
			w.refuse(connection, err, pending)
			return
		}
		// Requests that have already arrived are answered before the connection is closed.
		letGo := w.in.Buffered() == 0 && (w.server.waiting.Load() > 0 || w.server.draining.Load())
		keep := request.KeepAlive && !letGo
		reply := w.server.service.Answer(w.space, request.Method, request.Target, request.ContentType, request.Body)
		w.space = reply.Body[:0]
		sent := wire.Sent{Old: request.Old, KeepAlive: keep, Head: request.Method == "HEAD"}
		w.out = wire.AppendReply(w.out, &reply, sent, time.Now())
		pending++
		if !keep || len(w.out) > 64<<10 {
			if w.flush(connection, pending) != nil || !keep {
				return
			}
			pending = 0
		}
	}
}

// await waits for the first byte of a request, and sets the deadline for the rest. It returns false if the connection
// must close.
func (w *worker) await(connection net.Conn, first bool) bool {
	waits, timeout := kept, idleTimeout
	if first {
		waits, timeout = fresh, headTimeout
	}
	for end := time.Now().Add(timeout); ; {
		connection.SetReadDeadline(end)
		if !w.enter(waits, connection) {
			return false
		}
		// A connection that arrived before enter did not interrupt this goroutine.
		if w.isToLetGo(first) {
			w.interrupt(waits)
		}
		_, err := w.in.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			err = w.lastLook(connection)
			if errors.Is(err, os.ErrDeadlineExceeded) && !w.isToLetGo(first) {
				continue // another goroutine has closed its connection instead
			}
		}
		if err != nil || !w.enter(busy, connection) {
			return false
		}
		connection.SetReadDeadline(time.Now().Add(headTimeout))
		return true
	}
}

// isToLetGo returns whether an idle connection must close. A connection without a first request keeps its timeout,
// except in a drain.
func (w *worker) isToLetGo(first bool) bool {
	return w.server.draining.Load() || (!first && w.server.waiting.Load() > 0)
}

// lastLook waits a little longer before an idle connection closes. A request that is already under way is then served,
// and its answer announces the close.
func (w *worker) lastLook(connection net.Conn) error {
	wait := 50 * time.Millisecond
	if w.server.draining.Load() {
		wait = 5 * time.Millisecond
	}
	connection.SetReadDeadline(time.Now().Add(wait))
	_, err := w.in.Peek(1)
	return err
}

// refuse answers a request that is refused, and makes sure that the client can read the answer.
func (w *worker) refuse(connection net.Conn, err error, pending uint64) {
	refused := new(wire.Refused)
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, os.ErrDeadlineExceeded):
		refused.Status, refused.Why = 408, "the request took too long"
	default:
		w.flush(connection, pending) // the requests before it are answered
		return
	}
	reply := service.Failure(w.space, refused.Status, refused.Why)
	w.out = wire.AppendReply(w.out, &reply, wire.Sent{}, time.Now())
	if w.flush(connection, pending+1) == nil {
		linger(connection)
	}
}

// flush sends the buffered output, which has the given number of answers.
func (w *worker) flush(connection net.Conn, answers uint64) error {
	if len(w.out) == 0 {
		return nil
	}
	connection.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := connection.Write(w.out)
	w.out = w.out[:0]
	if err == nil {
		w.answered += answers
	}
	return err
}

// linger reads for a moment before the close. Closing a socket with unread bytes resets the connection, and the answer
// may be lost.
func linger(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		connection.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		io.CopyN(io.Discard, connection, 1<<20) // the connection closes next in any case
	}
}
